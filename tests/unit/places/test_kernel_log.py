"""The lines of the kernel's log on processes that were killed for lack of memory, by their control group."""

from __future__ import annotations

import pytest

from memprof.places.kernel_log import kills, lines_of

# As Linux 6.18 wrote them.
LOG = """python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/docker,task_memcg=/docker/ab,task=python3,pid=311,uid=0
Memory cgroup out of memory: Killed process 311 (python3) total-vm:67776kB, anon-rss:27008kB, file-rss:6528kB, shmem-rss:0kB, UID:0 pgtables:116kB
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/docker/abc,task_memcg=/docker/abc/below,task=cat,pid=312,uid=0
Memory cgroup out of memory: Killed process 312 (cat) total-vm:7kB
oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/docker/ab,task=sh,pid=313,uid=0
Out of memory: Killed process 313 (sh) total-vm:8kB
""".splitlines()


@pytest.mark.parametrize(
    "group, pids", [("/docker/ab", [311, 313]), ("/docker/abc", [312]), ("/docker", [311, 312, 313]), ("/web", []), ("/below", [312])]
)
def test_lines_by_group(group: str, pids: list[int]) -> None:
    found = [line.partition("Killed process ")[2].partition(" ")[0] for line in lines_of(LOG, group)]
    assert found == [str(pid) for pid in pids]


def test_group_without_path_has_no_lines() -> None:
    """As that of a namespace of groups, whose path in the kernel's log is not known."""
    assert kills("") is None
