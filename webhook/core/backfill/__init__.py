"""Who may start before a blocked head without delaying it.

``rule`` says who may pass: ``heads`` are the gangs that must not be delayed, ``timetable`` when each can start,
``bookings`` the room that is booked for them, ``head_plan`` all that at one moment.
"""
