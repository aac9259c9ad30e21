import { recorded } from '../recorded-group.js';

/** Written for kernel 5.4: `cpu` and `cpuacct` mounted together, no swap accounting, no limits. */
export const V1_5_4 = recorded(
  { name: 'v1, kernel 5.4', layout: 'v1', pid: 4100 },
  `== /proc/self/mountinfo
31 23 0:28 / /sys/fs/cgroup ro,nosuid,nodev,noexec shared:9 - tmpfs tmpfs ro,mode=755
32 31 0:29 / /sys/fs/cgroup/systemd rw,nosuid,nodev,noexec,relatime shared:10 - cgroup cgroup rw,xattr,release_agent=/usr/lib/systemd/systemd-cgroups-agent,name=systemd
33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid,nodev,noexec,relatime shared:12 - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 / /sys/fs/cgroup/memory rw,nosuid,nodev,noexec,relatime shared:13 - cgroup cgroup rw,memory
35 31 0:32 / /sys/fs/cgroup/blkio rw,nosuid,nodev,noexec,relatime shared:14 - cgroup cgroup rw,blkio
36 31 0:33 / /sys/fs/cgroup/pids rw,nosuid,nodev,noexec,relatime shared:15 - cgroup cgroup rw,pids
== /proc/self/cgroup
9:pids:/system.slice/cloudless-agent.service
8:blkio:/system.slice/cloudless-agent.service
4:memory:/system.slice/cloudless-agent.service
2:cpu,cpuacct:/system.slice/cloudless-agent.service
1:name=systemd:/system.slice/cloudless-agent.service
== /proc/4100/cgroup
9:pids:/cloudless/3f1c9e0a
8:blkio:/cloudless/3f1c9e0a
4:memory:/cloudless/3f1c9e0a
2:cpu,cpuacct:/cloudless/3f1c9e0a
1:name=systemd:/cloudless/3f1c9e0a
== /proc/4100/stat
4100 (nginx) S 1 4100 4100 0 -1 4194560 289 1183 1 0 35 14 0 1 20 0 1 0 1661752 2654208 395 18446744073709551615 1 1 1 0 0 0 0 6 65536 0 0 0 17 1 0 0 0 0 0
== /proc/4100/net/dev
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:   91536    1016    0    0    0     0          0         0    91536    1016    0    0    0     0       0          0
  eth0: 7340032    6100    1    2    0     0          0         0 94371840    9400    3    4    0     0       0          0
== /sys/fs/cgroup/cpu,cpuacct/cloudless/3f1c9e0a/cpu.stat
nr_periods 1200
nr_throttled 300
throttled_time 4500000000
== /sys/fs/cgroup/cpu,cpuacct/cloudless/3f1c9e0a/cpu.cfs_quota_us
-1
== /sys/fs/cgroup/cpu,cpuacct/cloudless/3f1c9e0a/cpu.cfs_period_us
100000
== /sys/fs/cgroup/cpu,cpuacct/cloudless/3f1c9e0a/cpuacct.usage
7340000000
== /sys/fs/cgroup/cpu,cpuacct/cloudless/3f1c9e0a/cpuacct.usage_user
5240000000
== /sys/fs/cgroup/cpu,cpuacct/cloudless/3f1c9e0a/cpuacct.usage_sys
2100000000
== /sys/fs/cgroup/memory/cloudless/3f1c9e0a/memory.usage_in_bytes
141557760
== /sys/fs/cgroup/memory/cloudless/3f1c9e0a/memory.limit_in_bytes
9223372036854771712
== /sys/fs/cgroup/memory/cloudless/3f1c9e0a/memory.max_usage_in_bytes
199229440
== /sys/fs/cgroup/memory/cloudless/3f1c9e0a/memory.stat
cache 0
rss 0
rss_huge 0
shmem 0
mapped_file 0
dirty 0
writeback 0
pgpgin 0
pgpgout 0
pgfault 0
pgmajfault 0
inactive_anon 0
active_anon 0
inactive_file 0
active_file 0
unevictable 0
hierarchical_memory_limit 9223372036854771712
total_cache 83886080
total_rss 50331648
total_rss_huge 0
total_shmem 4096
total_mapped_file 20971520
total_dirty 0
total_writeback 0
total_pgpgin 51207
total_pgpgout 30000
total_pgfault 51207
total_pgmajfault 12
total_inactive_anon 49283072
total_active_anon 1052672
total_inactive_file 62914560
total_active_file 20967424
total_unevictable 0
== /sys/fs/cgroup/blkio/cloudless/3f1c9e0a/blkio.throttle.io_service_bytes
8:16 Read 1459200
8:16 Write 314773504
8:16 Sync 316232704
8:16 Async 0
8:16 Discard 0
8:16 Total 316232704
8:0 Read 90430464
8:0 Write 299008000
8:0 Sync 389438464
8:0 Async 0
8:0 Discard 0
8:0 Total 389438464
Total 705671168
== /sys/fs/cgroup/blkio/cloudless/3f1c9e0a/blkio.throttle.io_serviced
8:16 Read 192
8:16 Write 353
8:16 Sync 545
8:16 Async 0
8:16 Discard 0
8:16 Total 545
8:0 Read 8950
8:0 Write 1252
8:0 Sync 10202
8:0 Async 0
8:0 Discard 0
8:0 Total 10202
Total 10747
== /sys/fs/cgroup/pids/cloudless/3f1c9e0a/pids.current
7
== /sys/fs/cgroup/pids/cloudless/3f1c9e0a/pids.max
max
`,
);
