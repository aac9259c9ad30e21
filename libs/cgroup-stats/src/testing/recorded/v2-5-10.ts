import { recorded } from '../recorded-group.js';

/** Written for kernel 5.10: a group without limits. */
export const V2_5_10 = recorded(
  { name: 'v2, kernel 5.10', layout: 'v2', pid: 4260 },
  `== /proc/self/mountinfo
23 27 0:22 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw
30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
== /proc/self/cgroup
0::/system.slice/cloudless-agent.service
== /proc/4260/cgroup
0::/system.slice/cri-containerd-3f1c9e0a.scope
== /proc/4260/stat
4260 (nginx) S 1 4260 4260 0 -1 4194560 289 1183 1 0 35 14 0 1 20 0 1 0 1661752 2654208 395 18446744073709551615 1 1 1 0 0 0 0 6 65536 0 0 0 17 1 0 0 0 0 0
== /proc/4260/net/dev
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:   91536    1016    0    0    0     0          0         0    91536    1016    0    0    0     0       0          0
  eth0: 7340032    6100    1    2    0     0          0         0 94371840    9400    3    4    0     0       0          0
== /sys/fs/cgroup/system.slice/cri-containerd-3f1c9e0a.scope/cpu.stat
usage_usec 7340000
user_usec 5240000
system_usec 2100000
nr_periods 1200
nr_throttled 300
throttled_usec 4500000
== /sys/fs/cgroup/system.slice/cri-containerd-3f1c9e0a.scope/cpu.max
50000 100000
== /sys/fs/cgroup/system.slice/cri-containerd-3f1c9e0a.scope/cpu.pressure
some avg10=2.50 avg60=0.25 avg300=0.05 total=1500000
== /sys/fs/cgroup/system.slice/cri-containerd-3f1c9e0a.scope/memory.pressure
some avg10=0.00 avg60=0.25 avg300=0.05 total=0
full avg10=0.10 avg60=0.05 avg300=0.01 total=0
== /sys/fs/cgroup/system.slice/cri-containerd-3f1c9e0a.scope/io.pressure
some avg10=1.25 avg60=0.25 avg300=0.05 total=900000
full avg10=0.10 avg60=0.05 avg300=0.01 total=300000
== /sys/fs/cgroup/system.slice/cri-containerd-3f1c9e0a.scope/memory.current
141557760
== /sys/fs/cgroup/system.slice/cri-containerd-3f1c9e0a.scope/memory.max
max
== /sys/fs/cgroup/system.slice/cri-containerd-3f1c9e0a.scope/memory.swap.current
1048576
== /sys/fs/cgroup/system.slice/cri-containerd-3f1c9e0a.scope/memory.swap.max
max
== /sys/fs/cgroup/system.slice/cri-containerd-3f1c9e0a.scope/memory.stat
anon 50331648
file 83886080
kernel_stack 147456
percpu 8192
sock 4096
shmem 4096
file_mapped 20971520
file_dirty 0
file_writeback 0
anon_thp 0
inactive_anon 49283072
active_anon 1052672
inactive_file 62914560
active_file 20967424
unevictable 0
slab_reclaimable 1048576
slab_unreclaimable 1048576
slab 2097152
workingset_refault_anon 0
workingset_refault_file 0
workingset_activate_anon 0
workingset_activate_file 0
workingset_restore_anon 0
workingset_restore_file 0
workingset_nodereclaim 0
pgfault 51207
pgmajfault 12
pgrefill 0
pgscan 0
pgsteal 0
pgactivate 0
pgdeactivate 0
pglazyfree 0
pglazyfreed 0
thp_fault_alloc 0
thp_collapse_alloc 0
== /sys/fs/cgroup/system.slice/cri-containerd-3f1c9e0a.scope/pids.current
7
== /sys/fs/cgroup/system.slice/cri-containerd-3f1c9e0a.scope/pids.max
max
== /sys/fs/cgroup/system.slice/cri-containerd-3f1c9e0a.scope/io.stat
8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0
8:0 rbytes=90430464 wbytes=299008000 rios=8950 wios=1252 dbytes=50331648 dios=3021 cost.usage=81920
`,
);
