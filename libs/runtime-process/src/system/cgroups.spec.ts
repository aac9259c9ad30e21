import { spawn } from 'node:child_process';
import path from 'node:path';
import { readStartToken } from '@cloudless/app-kit/background';
import { waitUntil } from '../testing/real-machine.js';
import { Cgroup, findOwnGroups, readOwnGroups } from './cgroups.js';

const HYBRID = `23 1 8:1 / / rw - ext4 /dev/root rw
37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime shared:9 - cgroup cgroup rw,freezer
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw`;

describe('findOwnGroups', () => {
  it.each([
    {
      name: 'returns version 2 first, then the freezer, in a hybrid hierarchy',
      mounts: HYBRID,
      membership: '8:pids:/\n6:freezer:/box\n0::/user.slice',
      groups: ['/sys/fs/cgroup/unified/user.slice', '/sys/fs/cgroup/freezer/box'],
    },
    {
      name: 'returns the group of version 2',
      mounts: '30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate',
      membership: '0::/system.slice/cloudless-agent.service',
      groups: ['/sys/fs/cgroup/system.slice/cloudless-agent.service'],
    },
    {
      name: 'returns a path relative to the mounted part of the hierarchy',
      mounts: '30 23 0:26 /box /sys/fs/cgroup rw - cgroup2 cgroup2 rw',
      membership: '0::/box/inner',
      groups: ['/sys/fs/cgroup/inner'],
    },
    {
      name: 'returns the mounted part itself when the process is outside',
      mounts: '30 23 0:26 /box /sys/fs/cgroup rw - cgroup2 cgroup2 rw',
      membership: '0::/elsewhere',
      groups: ['/sys/fs/cgroup'],
    },
    {
      name: 'decodes a blank in the mount point',
      mounts: '30 23 0:26 / /mnt/c\\040g rw - cgroup2 cgroup2 rw',
      membership: '0::/',
      groups: ['/mnt/c g'],
    },
    {
      name: 'returns no group when no cgroup hierarchy is mounted',
      mounts: '23 1 8:1 / / rw - ext4 /dev/root rw',
      membership: '0::/',
      groups: [],
    },
    {
      name: 'ignores hierarchies of other controllers',
      mounts: HYBRID.split('\n')[2] ?? '',
      membership: '8:pids:/',
      groups: [],
    },
  ])('$name', ({ mounts, membership, groups }) => {
    expect(findOwnGroups(mounts, membership)).toEqual(groups);
  });
});

describe('Cgroup, in each hierarchy where this user may create groups,', () => {
  it('kills all processes of the group, also in other sessions, and is removed only afterwards', async () => {
    for (const ownGroup of readOwnGroups()) {
      const group = new Cgroup(path.join(ownGroup, `cloudless-spec-${process.pid}`));
      if (!tryCreate(group)) continue;
      const script = `echo 0 >'${group.joinFile}' || exit; setsid env -i sleep 3600 & echo up; exec sleep 3600`;
      const child = spawn('/bin/sh', ['-c', script], {
        detached: true,
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      const hasJoined = await new Promise((resolve) => {
        child.stdout.once('data', () => resolve(true));
        child.once('exit', () => resolve(false));
      });
      if (hasJoined === false) {
        group.remove(); // a group that accepts no processes, as below a threaded group
        continue;
      }
      expect(group.remove()).toBe(false);
      group.kill();
      await waitUntil(() => readStartToken(child.pid ?? 0) === undefined);
      await waitUntil(() => group.remove());
      group.kill(); // a removed group has no processes
      expect(group.remove()).toBe(true);
    }
  });
});

function tryCreate(group: Cgroup): boolean {
  try {
    group.create();
    return true;
  } catch {
    return false; // this user lacks the permission
  }
}
