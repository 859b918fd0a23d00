"""How rough a story is: a value, of which ``weathers`` has the names."""

from dataclasses import dataclass
from typing import Final, Literal

from webhook.laboratory.simulated.faults import CALM, ROUGH, FaultRates
from webhook.laboratory.simulated.objects.resources import RELEASE


@dataclass(frozen=True, slots=True)
class Weather:
    """How rough a run is."""

    rates: FaultRates = ROUGH
    crash: float = 0.01
    """Chance that a reconciler dies at a write, before or after it is sent."""
    freeze: float = 0.002
    """Chance that a reconciler is frozen at a write, and thaws up to 30 s later."""
    cut_off: int = 0
    """How often a process of ours, webhook or reconciler, hears nothing from the API server for a while."""
    deaths_told: float = 0.0
    """Chance that a standby learns at once that the leader's process is dead."""
    deaths_imagined: float = 0.0
    """Chance that it takes a leader for dead that lives."""
    limited: float = 0.0
    """Chance that a job carries a run-time limit, which may be too short for it."""
    long: float = 0.0
    """Chance that a Job has more work than it does at a time, so that it may be stopped with a part of it done."""
    failing: float = 0.0
    """Chance that of a Job or JobSet the odd indexes fail: the Job goes on without, the JobSet restarts."""
    elastic: float = 0.0
    """Chance that a Job may start with fewer pods, some of them with its completions; owners scale these."""
    work_queues: float = 0.0
    """Chance that a Job says nothing of completions: it is done when one pod has succeeded and none runs."""
    lent: int = 0
    """How often somebody makes a pod that a Job takes for its own."""
    deadlines: bool = True
    """A frozen leader steps down when its lease ran out; without that, it goes on as if nothing had happened."""
    pod_groups: int = 0
    """How many gangs of plain pods there are beside the jobs."""
    kueues: bool = False
    """They are groups of Kueue's."""
    ensembles: int = 0
    """How many PodGroups there are that several jobs share."""
    release: int = RELEASE
    """The minor release of Kubernetes that the cluster is."""
    all_served: bool = False
    """Kinds are served of which there is nothing, and Kueue's in both versions: all is read that can be."""
    restored: bool = False
    """While all is busy etcd is set back to a backup. Ours are restarted only where no ledger shows it."""
    hostile: int = 0
    """How many things tenants do who write whatever they may."""
    hostile_kinds: bool = False
    """Their jobs are of every kind that the cluster runs."""
    hidden: bool = False
    """Nobody is told names of other namespaces."""
    kept: float = 0.0
    """Chance that a finalizer keeps a deleted job until everything else has come to rest."""
    adopted: bool = False
    """All queues are full with jobs that ran before Tutti came."""
    orphaned: int = 0
    """How often a job, or what it made, is deleted from above what runs of it, most of the time while none of our
    processes is there; jobs are of every kind then, and what asked for a queue runs within the queues.
    """
    children_ask: float = 0.0
    """Chance that the Jobs which a JobSet makes name a queue too: its own one, or another, or one that is not there."""
    ungated: int = 0
    """How often a person takes the label that gates namespaces away, and later puts it back; half of the jobs have no
    queue and wait by that label alone."""
    in_credits: bool = False
    """Queues count credits, into which GPUs are turned."""
    scheduled: float = 0.0
    """Chance that a CronJob controls a job."""
    refused: int = 0
    """How often another webhook begins to refuse every write of ours on a job, for a while."""
    slow_on_pods_seconds: float = 0.0
    """How long another webhook takes at most to let a pod pass that a controller creates."""
    start_seconds: float = 1.0
    """How long a pod takes at most to run once it is bound. A gang that is not whole after 30 s is stopped."""
    stop_seconds: float = 1.0
    """How long a pod that is deleted takes at most to stop."""
    replaced: int = 0
    """How many gangs lose a pod and end, are suspended or deleted while another in its stead is reviewed."""
    unlisted: int = 0
    """How often a kind can be listed by nobody for a while, in which our processes start again."""
    shut: int = 0
    """How often a kind that our processes have read is refused to us, or to everybody, while a gang of it waits, is
    started or runs."""
    shut_until_rest: bool = False
    """After these one more is refused while a gang of it waits, until all else has gone on for some minutes."""
    clocks_apart_seconds: float = 0.0
    """How far the clock of a machine may be ahead or behind when a process of ours starts there."""
    meshed: float = 0.0
    """Chance that an injector adds a sidecar to the pods of a job, which asks a device that its template does not."""
    nodes: tuple[int, ...] = (8, 8, 8)
    """GPUs of each."""
    node_churn: int = 0
    """How often something happens to a node."""
    racked: float = 0.0
    """Chance that the pods of a job are to be in one rack; there are two then."""
    many_shapes: bool = False
    """Each pod set asks for something of its own, JobSets have several, and few are looked at in a round."""
    fences: int = 0
    """How often a ResourceQuota is made narrower or wider."""
    quota_tree: bool = False
    """An ElasticQuotaTree is the policy, not Kueue's queues."""
    limits: bool = False
    """Queues lend and borrow within limits."""
    fair: bool = False
    """Their shares are to be fair, by weights."""
    two_flavors: bool = False
    """Queues have two flavors, each of nodes of its own."""
    priorities: bool = False
    """Jobs have priorities."""
    churn: int = 0
    """How often policy changes for a while."""
    nested: bool = False
    """What changes is mostly which cohorts are below which, by Cohorts that come and go."""
    page_bytes: int = 0
    """What index and pages take, where that is to be so little that there are many."""
    bugs: float = 0.0
    """Chance that our engine fails on a gang, until another release is installed at the end."""
    releases: int = 0
    """How often another release is installed while all is busy: one that spreads the ledger over pages, and then the
    one before, which keeps it in one object, as docs/operating.md says. Then no job leaves orphans, as below.
    """
    set_back: int = 0
    """How often the index of the ledger or a page of it is put back as it once was, or its list names a page that never
    was. Then no job leaves orphans, as below.
    """
    nobody_leads: float = 0.0
    """Chance that no reconciler runs when that is done, nor remembers anything."""
    dies_at: tuple[int, ...] = ()
    """Whoever does one of these writes of the ledger, counted from 1, dies."""
    dies: Literal["before", "after"] = "before"
    """It is ``before`` the write is sent, or just ``after`` it was answered."""
    ledger_lost: int = 0
    """How often the ledger is deleted, or edited by hand. Then no job leaves orphans: a leader that was not there
    before cannot know which quota they hold.
    """
    edited: int = 0
    """How often an entry of the ledger is changed, added or taken out by hand, or an annotation added, and the rest
    left as it is. Then no job leaves orphans either.
    """

    @property
    def all_in_queues(self) -> bool:
        """Whether whatever asks for a GPU names a queue, and no queue has another quota for a while."""
        freely = self.ungated, self.pod_groups, self.ensembles, self.hostile, self.node_churn, self.unlisted
        return not (self.churn or any(freely))

    @property
    def punctual(self) -> bool:
        """Whether nothing delays a stop."""
        ends = self.crash, self.freeze, self.cut_off, self.bugs, self.restored, self.set_back
        ended = self.orphaned, self.replaced, self.releases
        late = self.refused, self.unlisted, self.shut
        return self.rates is CALM and not any((*ends, *ended, *late))

    @property
    def leaves_orphans(self) -> bool:
        """Whether jobs are deleted as Kubernetes does it by default, so that a Job's pods run on."""
        return not (self.ledger_lost or self.edited or self.releases or self.set_back)


CALM_WEATHER: Final = Weather(CALM, 0.0, 0.0)
