import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { runCli } from '../../testing/run-cli.js';
import { formatUnit, quoteArgument, quoteWord, readFlag } from './install-unit-text.js';

const PROGRAMS = {
  '/usr/local/bin/cloudless-coordinator': '',
  '/usr/local/bin/cloudless-agent': '',
};
const printUnit = (...words: readonly string[]) =>
  runCli(['admin', 'install-unit', ...words], {
    files: PROGRAMS,
    env: { PATH: '/usr/bin:/usr/local/bin' },
  });
const NODE = ['--node', '/usr/bin/node'];

/** The flags of Node.js for a coordinator, by the number of processors; 5 stands for more. */
const NODE_FLAGS: Readonly<Record<number, string>> = {
  1: '--max-semi-space-size=64 --v8-pool-size=1',
  2: '--max-semi-space-size=64 --v8-pool-size=1',
  3: '--max-semi-space-size=64 --v8-pool-size=2',
  4: '--max-semi-space-size=64 --v8-pool-size=3',
  5: '--max-semi-space-size=64',
};
const toNodeOptions = (flags: string): string =>
  flags.includes(' ') ? `"NODE_OPTIONS=${flags}"` : `NODE_OPTIONS=${flags}`;

/** Returns the values of a setting in a unit, in their order. */
const valuesOf = (unit: string, name: string): readonly string[] =>
  unit
    .split('\n')
    .flatMap((line) => (line.startsWith(`${name}=`) ? [line.slice(name.length + 1)] : []));

describe('cloudlessctl admin install-unit', () => {
  it('prints a unit of a coordinator with a user of its own and no rights', async () => {
    const { exitCode, stdout, stderr, servers } = await printUnit(
      'coordinator',
      ...NODE,
      ...['--', '--host', '0.0.0.0', '--advertise', 'c1.example,10.0.0.1'],
    );
    expect({ exitCode, servers }).toEqual({ exitCode: 0, servers: [] });
    expect(valuesOf(stdout, 'ExecStart')).toEqual([
      '/usr/local/bin/cloudless-coordinator --data-dir /var/lib/cloudless-coordinator --host 0.0.0.0 --advertise c1.example,10.0.0.1',
    ]);
    const flags = NODE_FLAGS[Math.min(availableParallelism(), 5)] ?? '';
    expect(valuesOf(stdout, 'Environment')).toContain(toNodeOptions(flags));
    for (const [name, value] of [
      ['DynamicUser', 'yes'],
      ['CapabilityBoundingSet', ''],
      ['NoNewPrivileges', 'yes'],
      ['ProtectSystem', 'strict'],
      ['ProtectHome', 'yes'],
      ['StateDirectoryMode', '0700'],
      ['Restart', 'always'],
    ] as const)
      expect({ name, values: valuesOf(stdout, name) }).toEqual({ name, values: [value] });
    expect(stderr).toBe(
      'next: save it as /etc/systemd/system/cloudless-coordinator.service, then: systemctl daemon-reload && systemctl enable --now cloudless-coordinator\n',
    );
  });

  it('lets systemd read the files for etcd, which the user of the service cannot', async () => {
    const { stdout } = await printUnit(
      ...['coordinator', ...NODE, '--', '--state', 'etcd'],
      ...['--etcd-endpoints', 'https://10.0.0.1:2379', '--etcd-ca=/etc/etcd/ca.crt'],
      ...['--etcd-cert', '/etc/etcd/client.crt', '--etcd-key', '/etc/etcd/client key'],
    );
    expect(valuesOf(stdout, 'LoadCredential')).toEqual([
      'etcd-ca.crt:/etc/etcd/ca.crt',
      'etcd.crt:/etc/etcd/client.crt',
      '"etcd.key:/etc/etcd/client key"',
    ]);
    const credentials = '/run/credentials/cloudless-coordinator.service';
    expect(valuesOf(stdout, 'ExecStart')).toEqual([
      `/usr/local/bin/cloudless-coordinator --data-dir /var/lib/cloudless-coordinator --state etcd --etcd-endpoints https://10.0.0.1:2379 --etcd-ca=${credentials}/etcd-ca.crt --etcd-cert ${credentials}/etcd.crt --etcd-key ${credentials}/etcd.key`,
    ]);
    expect(await printUnit('coordinator', ...NODE, '--', '--etcd-key', 'client.key')).toMatchObject(
      {
        exitCode: 2,
        stderr: 'cloudlessctl: --etcd-key "client.key": expected an absolute path\n',
      },
    );
  });

  it('lets a coordinator listen on a port below 1024', async () => {
    const { stdout } = await printUnit('coordinator', ...NODE, '--', '--port', '443');
    expect(valuesOf(stdout, 'AmbientCapabilities')).toEqual(['CAP_NET_BIND_SERVICE']);
    expect(valuesOf(stdout, 'PrivateUsers')).toEqual([]);
  });

  it('keeps workloads running when an agent restarts or a workload runs out of memory', async () => {
    const { stdout } = await printUnit('agent', ...NODE, '--', '--coordinator', 'https://c1:8080');
    expect(valuesOf(stdout, 'ExecStart')).toEqual([
      '/usr/local/bin/cloudless-agent run --data-dir /var/lib/cloudless-agent --coordinator https://c1:8080',
    ]);
    expect(valuesOf(stdout, 'KillMode')).toEqual(['process']);
    expect(valuesOf(stdout, 'Delegate')).toEqual(['yes']);
    expect(valuesOf(stdout, 'OOMPolicy')).toEqual(['continue']);
  });

  it.each([
    { name: 'containers can see what the agent mounts', words: [], hasMountNamespace: false },
    {
      name: 'an agent with processes only writes to few directories',
      words: ['--', '--runtime', 'process'],
      hasMountNamespace: true,
    },
    {
      name: 'an agent of another user has no rights',
      words: ['--user', 'cloudless'],
      hasMountNamespace: true,
    },
  ])('$name', async ({ words, hasMountNamespace }) => {
    const { stdout } = await printUnit('agent', ...NODE, ...words);
    expect(valuesOf(stdout, 'ProtectSystem')).toEqual(hasMountNamespace ? ['strict'] : []);
    // what workloads write to /tmp outlives the agent
    expect(valuesOf(stdout, 'PrivateTmp')).toEqual([]);
    const isRoot = !words.includes('--user');
    expect(stdout.includes('CAP_SYS_ADMIN')).toBe(!hasMountNamespace);
    expect(stdout.includes('CAP_KILL')).toBe(isRoot);
    expect(valuesOf(stdout, 'User')).toEqual(isRoot ? [] : ['cloudless']);
  });

  it.each([
    { name: 'containers', words: [], netAdmin: true, directory: [] },
    {
      name: 'containers without a network proxy',
      words: ['--', '--network', 'off'],
      ...{ netAdmin: true, directory: [] },
    },
    {
      name: 'processes only',
      words: ['--', '--runtime', 'process'],
      ...{ netAdmin: true, directory: ['cloudless'] },
    },
    {
      name: 'processes only, without a network proxy',
      words: ['--', '--runtime=process', '--network=off'],
      ...{ netAdmin: false, directory: [] },
    },
    { name: 'another user', words: ['--user', 'x'], netAdmin: false, directory: [] },
  ])('gives an agent with $name what its network needs', async (expected) => {
    const { stdout } = await printUnit('agent', ...NODE, ...expected.words);
    expect(stdout.includes('CAP_NET_ADMIN')).toBe(expected.netAdmin);
    expect(valuesOf(stdout, 'RuntimeDirectory')).toEqual(expected.directory);
  });

  const isRoot = process.getuid?.() === 0 && existsSync('/usr/bin/setpriv');
  (isRoot ? it : it.skip)(
    'permits an agent to give processes a resolv.conf of their own',
    async () => {
      const { stdout } = await printUnit('agent', ...NODE);
      const [capabilities = ''] = valuesOf(stdout, 'CapabilityBoundingSet');
      const names = capabilities
        .split(' ')
        .map((name) => `+${name.replace('CAP_', '').toLowerCase()}`);
      const script = 'nsenter --mount=/proc/self/ns/mnt -- true';
      execFileSync('setpriv', [
        ...['--no-new-privs', `--bounding-set=-all,${names.join(',')}`],
        ...['unshare', '--mount', 'sh', '-c', script],
      ]);
    },
  );

  it('adds directories that workloads may write', async () => {
    const { stdout } = await printUnit(
      ...['agent', ...NODE, '--writable', '/srv/my data', '--writable', '/srv/x'],
      ...['--', '--runtime=process'],
    );
    expect(valuesOf(stdout, 'ReadWritePaths')).toEqual(['/tmp /var/tmp "/srv/my data" /srv/x']);
  });

  it.each([
    {
      words: ['database'],
      says: 'there is no unit for "database"; expected coordinator or agent',
    },
    {
      words: ['agent', ...NODE, '--', '--join-token', 'cl1.secret'],
      says: 'every user of the machine can read a unit: write the token to a file that only root can read, and use --join-token-file PATH instead of --join-token',
    },
    {
      words: ['agent', ...NODE, '--', '--data-dir=/srv'],
      says: 'the unit sets --data-dir itself, to /var/lib/cloudless-agent; leave it out',
    },
    {
      words: ['agent', ...NODE, '--', 'run', '--zone', 'a'],
      says: '"run" is not a flag; after -- give only the flags of cloudless-agent run',
    },
    {
      words: ['agent', ...NODE, '--', '--zone', 'a\nExecStartPre=/bin/evil'],
      says: '"a\\nExecStartPre=/bin/evil": a unit cannot contain this character',
    },
    {
      words: ['coordinator', '--node', '/root/.nvm/bin/node'],
      says: '/root/.nvm/bin/node is in a home, which the service cannot see; install the program for the whole machine, or name another one with --node PATH',
    },
    {
      words: ['coordinator', ...NODE, '--program', 'bin/x'],
      says: '--program "bin/x": expected an absolute path',
    },
    {
      words: ['coordinator', ...NODE, '--user', 'me'],
      says: '--user is for an agent; a coordinator has a user of its own',
    },
    {
      words: ['coordinator', ...NODE, '--writable', '/srv'],
      says: '--writable is for an agent; a coordinator runs no workloads',
    },
    {
      words: ['agent', ...NODE, '--writable', '/srv'],
      says: '--writable is for agents without containers: add --runtime process after --',
    },
    {
      words: ['agent', ...NODE, '--user', 'me', '--', '--runtime', 'cri'],
      says: '--runtime cri needs root; leave out --user, or use --runtime process',
    },
  ])('refuses $words', async ({ words, says }) => {
    const { exitCode, stdout, stderr } = await printUnit(...words);
    expect({ exitCode, stdout }).toEqual({ exitCode: 2, stdout: '' });
    expect(stderr).toContain(`cloudlessctl: ${says}\n`);
    expect(stderr).not.toContain('cl1.secret');
  });

  it('says how to install a program that is not in the search path', async () => {
    const { exitCode, stderr } = await runCli(['admin', 'install-unit', 'agent', ...NODE], {
      env: { PATH: '/usr/bin' },
    });
    expect(exitCode).toBe(2);
    expect(stderr).toContain(
      'cloudlessctl: cloudless-agent is not in the search path; install it (npm install --global cloudless-agent-VERSION.tgz), or name it with --program PATH\n',
    );
  });
});

describe('text of a unit', () => {
  it.each(
    Object.entries(NODE_FLAGS).map(([processors, flags]) => ({
      processors: Number(processors),
      flags,
    })),
  )(
    'has $flags, which NODE_OPTIONS accepts, for a coordinator with processors: $processors',
    ({ processors, flags }) => {
      const unit = formatUnit({
        ...{ service: 'coordinator', args: [], user: undefined, writablePaths: [], processors },
        ...{ program: '/usr/local/bin/cloudless-coordinator', nodeFolder: '/usr/bin' },
      });
      expect(valuesOf(unit, 'Environment')).toContain(toNodeOptions(flags));
      for (const flag of flags.split(' '))
        expect(process.allowedNodeEnvironmentFlags).toContain(flag.split('=')[0]);
    },
  );

  it('takes the last value of a flag', () => {
    expect(readFlag(['--port', '1', '--port=2'], '--port')).toBe('2');
    expect(readFlag(['--port'], '--port')).toBeUndefined();
  });

  it('quotes every word so that systemd reads the same word', () => {
    const word = fc.string({ unit: fc.constantFrom(...`ab \\"'%$;{}#`), minLength: 1 });
    fc.assert(
      fc.property(word, (text) => {
        expect(unquote(quoteWord(text))).toBe(text);
        expect(unquote(quoteArgument(text)).replaceAll('$$', '$')).toBe(text);
      }),
    );
  });
});

/** Reads a word as systemd does: systemd.syntax(7), systemd.unit(5), systemd.service(5). */
function unquote(text: string): string {
  const inner = text.startsWith('"') ? text.slice(1, -1).replaceAll(/\\(.)/g, '$1') : text;
  return inner.replaceAll('%%', '%');
}

const hasSystemd = spawnSync('systemd-analyze', ['--version']).status === 0;
(hasSystemd ? describe : describe.skip)('unit in systemd-analyze (skipped without systemd)', () => {
  let directory = '';
  beforeAll(() => (directory = mkdtempSync(join(tmpdir(), 'cloudless-unit-'))));
  afterAll(() => rmSync(directory, { recursive: true }));

  it.each([
    { name: 'a coordinator', service: 'coordinator', args: [], user: undefined, exposure: 2 },
    { name: 'an agent', service: 'agent', args: [], user: undefined, exposure: 8.5 },
    {
      name: 'an agent of another user',
      service: 'agent',
      args: ['--zone', '50% "a b" $HOME'],
      user: 'daemon',
      exposure: 6,
    },
  ] as const)('of $name is valid and exposes little', ({ service, args, user, exposure }) => {
    const file = join(directory, `cloudless-${service}.service`);
    const options = { service, args, user, writablePaths: [], processors: 2 };
    writeFileSync(file, formatUnit({ ...options, program: '/bin/sh', nodeFolder: '/usr/bin' }));
    const verified = spawnSync('systemd-analyze', ['verify', file], { encoding: 'utf8' });
    expect(verified).toMatchObject({ status: 0, stderr: '' });
    const text = execFileSync('systemd-analyze', ['security', '--offline=true', file], {
      encoding: 'utf8',
    });
    const [, value] = /exposure level for .*: ([\d.]+)/.exec(text) ?? [];
    expect(Number(value)).toBeLessThanOrEqual(exposure);
  });
});
