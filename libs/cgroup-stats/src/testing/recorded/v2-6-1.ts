import { recorded } from '../recorded-group.js';

/** Written for kernel 6.1: with `memory.peak`, CPU bursts and the keys of io.latency. */
export const V2_6_1 = recorded(
  { name: 'v2, kernel 6.1', layout: 'v2', pid: 4261 },
  `== /proc/self/mountinfo
23 27 0:22 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw
30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
== /proc/self/cgroup
0::/system.slice/cloudless-agent.service
== /proc/4261/cgroup
0::/cloudless.slice/3f1c9e0a
== /proc/4261/stat
4261 (nginx) S 1 4261 4261 0 -1 4194560 289 1183 1 0 35 14 0 1 20 0 1 0 1661752 2654208 395 18446744073709551615 1 1 1 0 0 0 0 6 65536 0 0 0 17 1 0 0 0 0 0
== /proc/4261/net/dev
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:   91536    1016    0    0    0     0          0         0    91536    1016    0    0    0     0       0          0
  eth0: 7340032    6100    1    2    0     0          0         0 94371840    9400    3    4    0     0       0          0
== /sys/fs/cgroup/cloudless.slice/3f1c9e0a/cpu.stat
usage_usec 7340000
user_usec 5240000
system_usec 2100000
core_sched.force_idle_usec 0
nr_periods 1200
nr_throttled 300
throttled_usec 4500000
nr_bursts 0
burst_usec 0
== /sys/fs/cgroup/cloudless.slice/3f1c9e0a/cpu.max
50000 100000
== /sys/fs/cgroup/cloudless.slice/3f1c9e0a/cpu.pressure
some avg10=2.50 avg60=0.25 avg300=0.05 total=1500000
full avg10=0.10 avg60=0.05 avg300=0.01 total=500000
== /sys/fs/cgroup/cloudless.slice/3f1c9e0a/memory.pressure
some avg10=0.00 avg60=0.25 avg300=0.05 total=0
full avg10=0.10 avg60=0.05 avg300=0.01 total=0
== /sys/fs/cgroup/cloudless.slice/3f1c9e0a/io.pressure
some avg10=1.25 avg60=0.25 avg300=0.05 total=900000
full avg10=0.10 avg60=0.05 avg300=0.01 total=300000
== /sys/fs/cgroup/cloudless.slice/3f1c9e0a/memory.current
141557760
== /sys/fs/cgroup/cloudless.slice/3f1c9e0a/memory.max
268435456
== /sys/fs/cgroup/cloudless.slice/3f1c9e0a/memory.peak
199229440
== /sys/fs/cgroup/cloudless.slice/3f1c9e0a/memory.swap.current
1048576
== /sys/fs/cgroup/cloudless.slice/3f1c9e0a/memory.swap.max
0
== /sys/fs/cgroup/cloudless.slice/3f1c9e0a/memory.stat
anon 50331648
file 83886080
kernel 4194304
kernel_stack 147456
pagetables 430080
sec_pagetables 0
percpu 8192
sock 4096
vmalloc 0
shmem 4096
zswap 0
zswapped 0
file_mapped 20971520
file_dirty 0
file_writeback 0
swapcached 0
anon_thp 0
file_thp 0
shmem_thp 0
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
pgscan 0
pgsteal 0
pgscan_kswapd 0
pgscan_direct 0
pgsteal_kswapd 0
pgsteal_direct 0
pgfault 51207
pgmajfault 12
pgrefill 0
pgactivate 0
pgdeactivate 0
pglazyfree 0
pglazyfreed 0
zswpin 0
zswpout 0
thp_fault_alloc 0
thp_collapse_alloc 0
== /sys/fs/cgroup/cloudless.slice/3f1c9e0a/pids.current
7
== /sys/fs/cgroup/cloudless.slice/3f1c9e0a/pids.max
512
== /sys/fs/cgroup/cloudless.slice/3f1c9e0a/io.stat
8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0 use_delay=0 delay_nsec=0 depth=max avg_lat=120 win=100
8:0 rbytes=90430464 wbytes=299008000 rios=8950 wios=1252 dbytes=50331648 dios=3021
`,
);
