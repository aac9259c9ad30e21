import { MalformedCgroupFileError, detectCgroupLayout, locateCgroup, parseCgroupMounts, parseProcCgroup } from './index.js';

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
    { name: 'v1', text: V1, layout: 'v1' },
    { name: 'v2', text: V2, layout: 'v2' },
    { name: 'hybrid', text: V1 + UNIFIED, layout: 'hybrid' },
    { name: 'v2 with a named v1 hierarchy that has no controller', text: `${NAMED}\n${UNIFIED}`, layout: 'v2' },
    { name: 'none', text: '31 23 0:28 / / rw - ext4 /dev/vda rw\n', layout: 'none' },
  ])('$name', ({ text, layout }) => expect(detectCgroupLayout(parseCgroupMounts(text))).toBe(layout));
});

describe('parseCgroupMounts', () => {
  it('reads controllers, root and mount point, and undoes escapes', () => {
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

  it('refuses a line without fields', () => {
    expect(() => parseCgroupMounts(`${V2}oops\n`)).toThrow(expect.objectContaining({ line: 2 }) as Error);
  });
});

describe('parseProcCgroup', () => {
  it('reads v1, named and v2 lines, colons in the path included', () => {
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
      name: 'a nested group of v2, up to the mount point',
      found: locate(V2, '0::/a/b\n', 'memory'),
      version: 2,
      directories: ['/sys/fs/cgroup/a/b', '/sys/fs/cgroup/a', '/sys/fs/cgroup'],
    },
    {
      name: 'v1 comes before v2',
      found: locate(V1 + UNIFIED, '2:cpu,cpuacct:/a\n0::/\n', 'cpu'),
      version: 1,
      directories: ['/sys/fs/cgroup/cpu,cpuacct/a', '/sys/fs/cgroup/cpu,cpuacct'],
    },
    {
      name: 'v2 where v1 does not have it',
      found: locate(V1 + UNIFIED, '0::/p\n', 'io'),
      version: 2,
      directories: ['/sys/fs/cgroup/unified/p', '/sys/fs/cgroup/unified'],
    },
    {
      name: 'a mount of a part of the hierarchy',
      found: locate(V1, '4:memory:/docker/abc/x\n', 'memory'),
      version: 1,
      directories: ['/sys/fs/cgroup/memory/x', '/sys/fs/cgroup/memory'],
    },
    {
      name: 'a path that is not mounted',
      found: locate(V1, '4:memory:/other\n', 'memory'),
      version: 1,
      directories: ['/sys/fs/cgroup/memory'],
    },
    { name: 'a path out of the namespace', found: locate(V2, '0::/../x\n', 'cpu'), version: 2, directories: ['/sys/fs/cgroup'] },
    { name: 'no membership', found: locate(V2, '', 'cpu'), version: 2, directories: ['/sys/fs/cgroup'] },
  ])('$name', ({ found, version, directories }) => expect(found).toMatchObject({ version, directories }));

  it('finds nothing where nothing is mounted', () => {
    expect(locate('', '0::/\n', 'cpu')).toBeUndefined();
  });
});
