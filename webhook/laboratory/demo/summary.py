"""What happened, gathered from the pictures and told in a few plain sentences, each about something that was seen."""

from dataclasses import dataclass, field

from webhook.laboratory.demo.watching import Gang, Picture, State


@dataclass(slots=True)
class Life:
    """One gang from its creation to its end. Times are seconds since the curtain rose."""

    size: int
    gpus: int
    queue: str
    submitted: float
    states: list[tuple[float, State]] = field(default_factory=list)
    reason: str = ""
    """The last thing said while it waited for the first time."""
    stopped_for: str = ""
    pods_before_start: int = 0
    """The most pods ever seen of it before it had a reservation."""

    def first(self, state: State) -> float | None:
        """Return when it was first seen in a state."""
        return next((at for at, seen in self.states if seen == state), None)

    @property
    def stops(self) -> int:
        """How often it was stopped whole."""
        return sum(seen == "stopping" for _, seen in self.states)

    @property
    def state(self) -> State:
        """What it was last seen doing."""
        return self.states[-1][1]


class Summary:
    """Takes in one picture after the other."""

    def __init__(self) -> None:
        self.lives: dict[str, Life] = {}
        self.most_gpus = 0
        self.most_borrowed: dict[str, int] = {}

    def see(self, picture: Picture, now: float) -> list[str]:
        """Take in a picture; return a line for each thing that changed."""
        self.most_gpus = max(self.most_gpus, picture.gpus_in_use)
        for queue in picture.queues:
            self.most_borrowed[queue.name] = max(self.most_borrowed.get(queue.name, 0), queue.borrowed)
        lines = []
        for gang in picture.gangs:
            life = self.lives.setdefault(gang.key, Life(gang.size, gang.gpus, gang.queue, now))
            never_admitted = life.first("starting") is None and life.first("running") is None
            if gang.state == "waiting" and never_admitted:
                life.pods_before_start = max(life.pods_before_start, gang.pods)
                if gang.reason and gang.reason != life.reason:
                    life.reason = gang.reason
                    lines.append(_line(now, gang, f"waits: {gang.reason}"))
            if gang.state in ("stopping", "waiting") and life.stops:
                life.stopped_for = gang.stopped_for or life.stopped_for
            if not life.states or life.state != gang.state:
                life.states.append((now, gang.state))
                lines.append(_line(now, gang, _described(gang, again=bool(life.stops))))
        return lines

    def over(self, expected: int) -> bool:
        """Whether every one of ``expected`` gangs has ended."""
        return len(self.lives) >= expected and all(life.state in ("finished", "failed") for life in self.lives.values())

    def sentences(self, gpus: int, seconds: float) -> list[str]:
        """Return what happened."""
        told = []
        for queue, most in self.most_borrowed.items():
            if most:
                told.append(f"Queue {queue} borrowed up to {most} GPUs that the other team did not use.")
        for key, life in self.lives.items():
            begun = life.first("starting") or life.first("running")
            if begun is not None and begun - life.submitted > 1.5:
                pods = "not one of its pods" if not life.pods_before_start else f"{life.pods_before_start} of its pods"
                told.append(
                    f"{key} waited {begun - life.submitted:.0f} s, and {pods} existed before all {life.size} could run."
                )
            if life.stops:
                why = f" ({life.stopped_for})" if life.stopped_for else ""
                told.append(f"{key} was stopped whole{why}, kept its place in the queue, and started whole again.")
        finished = [key for key, life in self.lives.items() if life.state == "finished"]
        told.append(
            f"{len(finished)} of {len(self.lives)} gangs finished in {seconds:.0f} s; at no moment were more than"
            f" {self.most_gpus} of {gpus} GPUs in use."
        )
        return told

    @property
    def succeeded(self) -> bool:
        """Every gang finished, and none had a pod before its turn."""
        return all(life.state == "finished" and not life.pods_before_start for life in self.lives.values())


def _described(gang: Gang, *, again: bool) -> str:
    match gang.state:
        case "starting":
            return f"admitted: {gang.size} pods start together"
        case "running":
            return f"runs with all {gang.size} pods"
        case "stopping":
            return f"is stopped whole: {gang.stopped_for}" if gang.stopped_for else "is stopped whole"
        case "waiting":
            asked = f"{gang.size} pods, {gang.gpus} GPUs"
            return "waits again, at its place" if again else f"submitted: {asked}"
        case "finished" | "failed":
            return gang.state


def _line(now: float, gang: Gang, text: str) -> str:
    return f"{now:5.1f} s  {gang.key:<28} {text}"
