import {
  MalformedCgroupFileError,
  detectCgroupLayout,
  findGroupDirectory,
  locateCgroup,
  parseCgroupMounts,
  parseProcCgroup,
  pathInHierarchy,
} from '../index.js';

const V1 = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,release_agent=/lib/agent,name=systemd
`;
const V2 = '30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n';
const UNIFIED = '41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n';
const NAMED = V1.split('\n')[3] ?? '';

describe('detectCgroupLayout', () => {
  it.each([
    { name: 'v1 mounts', text: V1, layout: 'v1' },
    { name: 'a v2 mount', text: V2, layout: 'v2' },
    { name: 'v1 and v2 mounts', text: V1 + UNIFIED, layout: 'hybrid' },
    {
      name: 'a v2 mount with a named v1 hierarchy without controllers',
      text: `${NAMED}\n${UNIFIED}`,
      layout: 'v2',
    },
    { name: 'other mounts', text: '31 23 0:28 / / rw - ext4 /dev/vda rw\n', layout: 'none' },
  ])('returns $layout for $name', ({ text, layout }) =>
    expect(detectCgroupLayout(parseCgroupMounts(text))).toBe(layout),
  );
});

describe('parseCgroupMounts', () => {
  it('returns controllers, root and mount point with unescaped paths', () => {
    expect(parseCgroupMounts(V1)[0]).toEqual({
      version: 1,
      mountPoint: '/sys/fs/cgroup/cpu,cpuacct',
      root: '/',
      controllers: ['cpu', 'cpuacct'],
    });
    expect(parseCgroupMounts('1 2 0:1 /a\\040b /m\\134 rw - cgroup2 none rw')).toEqual([
      { version: 2, mountPoint: '/m\\', root: '/a b', controllers: [] },
    ]);
  });

  it('throws with the line number when a line lacks fields', () => {
    expect(() => parseCgroupMounts(`${V2}oops\n`)).toThrow(
      expect.objectContaining({ line: 2 }) as Error,
    );
  });
});

describe('parseProcCgroup', () => {
  it('parses lines of v1, named and v2 hierarchies, and throws for other lines', () => {
    expect(parseProcCgroup('9:name=systemd:/\n2:cpu,cpuacct:/a:b\n0::/x\n')).toEqual([
      { hierarchy: 9, controllers: ['name=systemd'], path: '/' },
      { hierarchy: 2, controllers: ['cpu', 'cpuacct'], path: '/a:b' },
      { hierarchy: 0, controllers: [], path: '/x' },
    ]);
    expect(() => parseProcCgroup('memory\n')).toThrow(MalformedCgroupFileError);
  });
});

describe('locateCgroup', () => {
  const locate = (mountinfo: string, cgroup: string, controller: string) =>
    locateCgroup(parseCgroupMounts(mountinfo), parseProcCgroup(cgroup), controller);

  it.each([
    {
      name: 'the directories of a nested v2 group up to the mount point',
      found: locate(V2, '0::/a/b\n', 'memory'),
      version: 2,
      directories: ['/sys/fs/cgroup/a/b', '/sys/fs/cgroup/a', '/sys/fs/cgroup'],
    },
    {
      name: 'the v1 hierarchy of the controller when v2 is mounted, too',
      found: locate(V1 + UNIFIED, '2:cpu,cpuacct:/a\n0::/\n', 'cpu'),
      version: 1,
      directories: ['/sys/fs/cgroup/cpu,cpuacct/a', '/sys/fs/cgroup/cpu,cpuacct'],
    },
    {
      name: 'the v2 hierarchy when no v1 hierarchy has the controller',
      found: locate(V1 + UNIFIED, '0::/p\n', 'io'),
      version: 2,
      directories: ['/sys/fs/cgroup/unified/p', '/sys/fs/cgroup/unified'],
    },
    {
      name: 'the group below a mount of a part of the hierarchy',
      found: locate(V1, '4:memory:/docker/abc/x\n', 'memory'),
      version: 1,
      directories: ['/sys/fs/cgroup/memory/x', '/sys/fs/cgroup/memory'],
    },
    {
      name: 'the mount point for a path that is not mounted',
      found: locate(V1, '4:memory:/other\n', 'memory'),
      version: 1,
      directories: ['/sys/fs/cgroup/memory'],
    },
    {
      name: 'the mount point for a path outside of the cgroup namespace',
      found: locate(V2, '0::/../x\n', 'cpu'),
      version: 2,
      directories: ['/sys/fs/cgroup'],
    },
    {
      name: 'the mount point for a process without a membership',
      found: locate(V2, '', 'cpu'),
      version: 2,
      directories: ['/sys/fs/cgroup'],
    },
  ])('returns $name', ({ found, version, directories }) =>
    expect(found).toMatchObject({ version, directories }),
  );

  it('returns undefined when no hierarchy is mounted', () => {
    expect(locate('', '0::/\n', 'cpu')).toBeUndefined();
  });
});

describe('findGroupDirectory', () => {
  const find = (mountinfo: string, cgroup: string, controller: string | undefined) => {
    const memberships = parseProcCgroup(cgroup);
    return findGroupDirectory(parseCgroupMounts(mountinfo), controller, (mount) =>
      pathInHierarchy(memberships, mount),
    );
  };
  /** The same hierarchy mounted twice: a part of it, and the whole. */
  const TWICE = `35 31 0:32 /docker/abc /run/part ro - cgroup cgroup rw,memory
36 31 0:32 / /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory
`;

  it.each([
    {
      name: 'the directory of a v2 group',
      found: find(V2, '0::/a/b\n', 'memory'),
      version: 2,
      directory: '/sys/fs/cgroup/a/b',
    },
    {
      name: 'the v1 directory of the controller when v2 is mounted, too',
      found: find(V1 + UNIFIED, '2:cpu,cpuacct:/a\n0::/u\n', 'cpuacct'),
      version: 1,
      directory: '/sys/fs/cgroup/cpu,cpuacct/a',
    },
    {
      name: 'the v2 directory beside v1 without a controller',
      found: find(V1 + UNIFIED, '2:cpu,cpuacct:/a\n0::/u\n', undefined),
      version: 2,
      directory: '/sys/fs/cgroup/unified/u',
    },
    {
      name: 'the v2 directory when no v1 hierarchy has the controller',
      found: find(V1 + UNIFIED, '2:cpu,cpuacct:/a\n0::/u\n', 'blkio'),
      version: 2,
      directory: '/sys/fs/cgroup/unified/u',
    },
    {
      name: 'the directory in a mount of a part of the hierarchy that contains the group',
      found: find(TWICE, '4:memory:/docker/abc/x\n', 'memory'),
      version: 1,
      directory: '/run/part/x',
    },
    {
      name: 'the directory in another mount when the first mount does not contain the group',
      found: find(TWICE, '4:memory:/other\n', 'memory'),
      version: 1,
      directory: '/sys/fs/cgroup/memory/other',
    },
    {
      name: 'the mount point when the mounted part is the group itself',
      found: find(V1, '4:memory:/docker/abc\n', 'memory'),
      version: 1,
      directory: '/sys/fs/cgroup/memory',
    },
    {
      name: 'the directory in a hierarchy that is mounted at the root directory',
      found: find('30 23 0:26 / / rw - cgroup2 cgroup2 rw\n', '0::/a\n', 'cpu'),
      version: 2,
      directory: '/a',
    },
  ])('returns $name', ({ found, version, directory }) =>
    expect(found).toEqual({ version, directory }),
  );

  it.each([
    { name: 'the root group', found: find(V2, '0::/\n', 'memory') },
    { name: 'a group that is not mounted', found: find(V1, '4:memory:/other\n', 'memory') },
    { name: 'a group outside of the cgroup namespace', found: find(V2, '0::/../x\n', 'memory') },
    { name: 'a path that leads back to the root', found: find(V2, '0::/a/../../x\n', 'memory') },
    {
      name: 'a process that is not in the hierarchy',
      found: find(V1, '2:cpu,cpuacct:/a\n', 'memory'),
    },
    {
      name: 'a v2 group when only v1 is mounted',
      found: find(V1, '4:memory:/docker/abc/x\n0::/x\n', undefined),
    },
    { name: 'any group when no hierarchy is mounted', found: find('', '0::/a\n', 'memory') },
  ])('returns undefined for $name', ({ found }) => expect(found).toBeUndefined());
});
