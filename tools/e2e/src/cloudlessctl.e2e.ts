import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Workload } from '@cloudless/api';
import { QUICK, RealCluster, TALKER_COMMAND } from './support/cluster.js';
import { findBundle, runToEnd, type FinishedProgram } from './support/processes.js';

let cluster: RealCluster;
beforeAll(async () => {
  cluster = await RealCluster.start(['zone-a', 'zone-b']);
  await mkdir(join(cluster.directory, 'manifests'));
});
afterAll(() => cluster.stop());

const runCtl = (...args: readonly string[]): Promise<FinishedProgram> => cluster.runCtl(...args);
/** Returns stdout of a command. Expects that the command succeeds without output on stderr. */
async function getOutput(...args: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await runCtl(...args);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  return stdout;
}
/** Writes a manifest and returns its path. */
async function writeManifest(name: string, text: string): Promise<string> {
  const file = join(cluster.directory, 'manifests', name);
  await writeFile(file, text);
  return file;
}
/** Environment of scripts that call cloudlessctl. */
const shellEnv = (): NodeJS.ProcessEnv => ({
  ...cluster.ctlEnv,
  NODE: process.execPath,
  BUNDLE: findBundle('cloudlessctl'),
});
const listNames = async (): Promise<readonly string[]> =>
  (await cluster.client.listWorkloads({})).workloads.map(({ name }) => name);
const readWorkload = (name: string): Promise<Workload> => cluster.client.getWorkload({ name });

describe('an invalid manifest', () => {
  const good = 'name: good\nspec: { command: [sleep, "1000"], replicas: 0 }\n';

  it.each([
    {
      name: 'an unknown key',
      file: 'unknown.yaml',
      text: 'kind: Workload\nname: bad\nspec:\n  command: [sleep, "1"]\n  replicass: 2\n',
      message: ':5:3: spec.replicass: unknown key; did you mean replicas?',
    },
    {
      name: 'an unknown nested key in snake_case',
      file: 'deeper.yaml',
      text: 'name: bad\nspec:\n  command: [sleep, "1"]\n  rollout:\n    max_serge: 2\n',
      message: ':5:5: spec.rollout.max_serge: unknown key; did you mean max_surge?',
    },
    {
      name: 'an unknown key in JSON',
      file: 'unknown.json',
      text: '{\n  "name": "bad",\n  "spec": { "comand": ["sleep", "1"] }\n}\n',
      message: ':3:13: spec.comand: unknown key; did you mean command?',
    },
    {
      name: 'a duplicate key',
      file: 'doubled.yaml',
      text: 'name: bad\nspec:\n  command: [sleep, "1"]\n  env: { A: "1" }\n  env: { B: "2" }\n',
      message: ':5:3: spec.env: ',
    },
    {
      name: 'a key in both spellings',
      file: 'spellings.yaml',
      text: 'name: bad\nspec:\n  command: [sleep, "1"]\n  workingDir: /\n  working_dir: /\n',
      message: ':5:3: spec.working_dir: cannot be given together with workingDir',
    },
    {
      name: 'a number in place of a string',
      file: 'number.yaml',
      text: 'name: bad\nspec: { command: [sleep, 1] }\n',
      message: ':2:26: spec.command[1]: expected a string, got the number 1; write "1"',
    },
    {
      name: 'an unknown enum value',
      file: 'value.yaml',
      text: 'name: bad\nspec: { command: [sleep, "1"], rollout: { strategy: ROLING_UPDATE } }\n',
      message:
        ':2:53: spec.rollout.strategy: expected one of ROLLING_UPDATE, RECREATE, BLUE_GREEN, got the string "ROLING_UPDATE"; did you mean ROLLING_UPDATE?',
    },
    {
      name: 'a missing name',
      file: 'nameless.yaml',
      text: 'spec: { command: [sleep, "1"] }\n',
      message: ':1:1: name: is missing',
    },
    { name: 'invalid YAML', file: 'broken.yaml', text: 'name: [\n', message: 'broken.yaml:' },
  ])(
    'is rejected with file, line and path for $name, and no document is applied',
    async ({ file, text, message }) => {
      const before = await listNames();
      const path = await writeManifest(file, file.endsWith('.json') ? text : `${text}---\n${good}`);
      const { code, stdout, stderr } = await runCtl(
        'apply',
        '-f',
        await writeManifest('first.yaml', good.replace('good', 'first')),
        '-f',
        path,
      );
      expect({
        code,
        stdout,
        message: stderr.includes(file === 'broken.yaml' ? message : `${path}${message}`)
          ? message
          : stderr,
      }).toEqual({
        code: 2,
        stdout: '',
        message,
      });
      expect(stderr).toMatch(/^cloudlessctl: nothing was applied:\n/);
      expect(await listNames()).toEqual(before);
    },
  );

  it('is rejected with a list of all problems', async () => {
    const path = await writeManifest(
      'many.yaml',
      'name: Bad\nspec:\n  command: sleep\n  replicass: 2\n  env: [A]\n',
    );
    const { stderr } = await runCtl('apply', '-f', path);
    const lines = stderr.trim().split('\n').slice(1);
    expect(lines.map((line) => /:(\d+):\d+: ([\w.]+): /.exec(line)?.slice(1).join(' '))).toEqual([
      '1 name',
      '3 spec.command',
      '4 spec.replicass',
      '5 spec.env',
    ]);
  });

  it('is not applied at all when the coordinator refuses one of its documents', async () => {
    const before = await listNames();
    const path = await writeManifest(
      'refused.yaml',
      `${good}---\nname: bad\nspec: { command: [sleep, "1"], resources: { requests: { gpus: 1 } } }\n`,
    );
    expect(await runCtl('apply', '-f', path)).toEqual({
      code: 1,
      stdout: '',
      stderr:
        'cloudlessctl: nothing was applied:\nworkload default/bad: ' +
        'spec.resources.requests.gpus: not supported in this version; leave it out (UNIMPLEMENTED)\n',
    });
    expect(await listNames()).toEqual(before);
  });
});

describe('cloudlessctl apply', () => {
  const createManifest = (version: string): string =>
    `kind: Workload\nname: applied\nspec:\n  command: [sleep, "1000"]\n  env: { VERSION: "${version}" }\n  replicas: 2\n  rollout: { min_ready_duration: 0s, max_surge: 1 }\n`;
  const json = JSON.stringify({
    name: 'applied',
    spec: {
      command: ['sleep', '1000'],
      env: { VERSION: '1' },
      replicas: 2,
      rollout: { minReadyDuration: '0s', maxSurge: 1 },
    },
  });

  it('prints the plan and changes nothing with --dry-run', async () => {
    const text = await getOutput(
      'apply',
      '-f',
      await writeManifest('applied.yaml', createManifest('1')),
      '--dry-run',
    );
    expect(text).toContain('workload default/applied: create\n');
    expect(text).toMatch(/new replicas on: agent-1 \(1\), agent-2 \(1\)/);
    expect(await listNames()).not.toContain('applied');
  });

  it('reports no change for the same manifest in YAML or JSON, in both spellings, from file or stdin', async () => {
    const file = await writeManifest('applied.yaml', createManifest('1'));
    const created = await getOutput('apply', '-f', file, '--wait');
    expect(created).toContain('workload default/applied: created\n');
    expect(created).toMatch(/workload default\/applied: 2 of 2 ready\n$/);
    const before = await readWorkload('applied');
    expect(await getOutput('apply', '-f', file)).toBe('workload default/applied: unchanged\n');
    expect(await getOutput('apply', '-f', await writeManifest('applied.json', json))).toBe(
      'workload default/applied: unchanged\n',
    );
    const input = await cluster.runCtlWithInput(json, 'apply', '-f', '-');
    expect(input).toEqual({ code: 0, stdout: 'workload default/applied: unchanged\n', stderr: '' });
    expect(await readWorkload('applied')).toMatchObject({
      uid: before.uid,
      generation: 1n,
      spec: before.spec,
    });
  });

  it('prints the difference and the steps, and waits with --wait until the new version runs', async () => {
    const before = await readWorkload('applied');
    const text = await getOutput(
      'apply',
      '-f',
      await writeManifest('applied.yaml', createManifest('2')),
      '--wait',
    );
    expect(text).toContain('  env["VERSION"]: "1" -> "2"\n');
    expect(text).toContain('  new version: every replica is replaced\n');
    expect(text).toMatch(/^ {2}create 1 of version 2 +2 +1 +3$/m);
    expect(text).toMatch(/^ {2}lowest ready \d \(minimum 1\), highest live 3$/m);
    expect(text).toContain('workload default/applied: updated\n');
    expect(text).toMatch(/workload default\/applied: 2 of 2 ready\n$/);
    const { status, uid } = await readWorkload('applied');
    expect(uid).toBe(before.uid);
    expect(status!.replicas.map(({ version, ready }) => ({ version, ready }))).toEqual([
      { version: 2, ready: true },
      { version: 2, ready: true },
    ]);
  });

  it('keeps the number of replicas when the manifest sets no number', async () => {
    await getOutput('scale', 'applied', '1', '--wait');
    await getOutput(
      'apply',
      '-f',
      await writeManifest('applied.yaml', createManifest('3').replace('  replicas: 2\n', '')),
      '--wait',
    );
    expect((await readWorkload('applied')).spec).toMatchObject({
      replicas: 1,
      env: { VERSION: '3' },
    });
  });
});

describe('exit codes of cloudlessctl', () => {
  beforeAll(async () => {
    await cluster.client.createWorkload({
      name: 'exits',
      spec: { ...QUICK, command: ['sleep', '1000'], replicas: 0 },
    });
  });

  it.each([
    { name: 'an unknown command', args: ['bogus'], code: 2, message: "unknown command 'bogus'" },
    {
      name: 'an unknown flag',
      args: ['get', 'workloads', '--al'],
      code: 2,
      message: "unknown option '--al'",
    },
    {
      name: 'an unknown object kind',
      args: ['get', 'wrkloads'],
      code: 2,
      message:
        'unknown kind "wrkloads": expected workloads, replicas, containers, services, routes, secrets, configs, policies, plans, nodes, events, namespaces, users or tokens; did you mean workloads?',
    },
    {
      name: 'an unknown format',
      args: ['get', 'nodes', '-o', 'jsn'],
      code: 2,
      message:
        '--output: expected one of table, wide, json, yaml, name, manifest, jsonpath=TEMPLATE, custom-columns=HEADER:PATH,…, got "jsn"; did you mean json?',
    },
    {
      name: 'a value that the coordinator refuses',
      args: ['scale', 'exits', '1000001'],
      code: 2,
      message: '(INVALID_ARGUMENT)',
    },
    {
      name: 'a missing workload',
      args: ['get', 'workload', 'nothing'],
      code: 3,
      message: 'workload "default/nothing" not found (NOT_FOUND)',
    },
    {
      name: 'a missing node',
      args: ['node', 'cordon', 'nothing'],
      code: 3,
      message: 'node "nothing" not found (NOT_FOUND)',
    },
    {
      name: 'an existing workload',
      args: ['workload', 'create', 'exits', '--', 'true'],
      code: 4,
      message: 'already exists; update it, or choose another name (ALREADY_EXISTS)',
    },
    {
      name: 'a command in a workload without running replica',
      args: ['exec', 'exits', '--', 'true'],
      code: 4,
      message: 'no replica of workload "default/exits" is running (FAILED_PRECONDITION)',
    },
    {
      name: 'a missing coordinator',
      args: ['get', 'nodes', '--server', 'http://127.0.0.1:1'],
      code: 5,
      message: 'cannot reach the coordinator at http://127.0.0.1:1: connection refused',
    },
  ])('are $code for $name', async ({ args, code, message }) => {
    const result = await runCtl(...args);
    expect(result.stderr).toContain(message);
    expect(result).toMatchObject({ code, stdout: '' });
  });

  it('are 6 when --timeout expires while replicas start', async () => {
    const { code, stderr } = await runCtl(
      'workload',
      'create',
      'deaf',
      '--port',
      'http=80',
      '--wait',
      '--timeout',
      '1s',
      '--',
      'sleep',
      '1000',
    );
    expect({ code, stderr }).toEqual({
      code: 6,
      stderr: expect.stringMatching(
        /^cloudlessctl: workload default\/deaf did not become ready within 1s: 0 of 1 ready: .*waiting for port http/,
      ) as string,
    });
    await cluster.client.deleteWorkload({ name: 'deaf' });
  });

  it('are 7 without a time-out when no node can ever run a replica, with all reasons', async () => {
    const { code, stderr } = await runCtl(
      'workload',
      'create',
      'image',
      '--image',
      'nginx:alpine',
      '--zone',
      'zone-q',
      '--wait',
      '--accept-warnings',
    );
    expect({ code, stderr }).toEqual({
      code: 7,
      stderr: expect.stringContaining(
        'no node fits: no container runtime: 2 of 2 nodes; not in zone zone-q: 2 of 2 nodes',
      ) as string,
    });
    expect(await runCtl('delete', 'image', '--wait')).toMatchObject({ code: 0 });
  });
});

describe('cloudlessctl', () => {
  beforeAll(async () => {
    const spec = {
      ...QUICK,
      command: TALKER_COMMAND,
      ports: [{ name: 'http', containerPort: 80 }],
    };
    await cluster.client.createWorkload({ name: 'talker', spec });
    await cluster.waitUntilSettled('talker');
  });
  const requestPath = async (path: string): Promise<void> => {
    const { ip, port } = (await readWorkload('talker')).status!.replicas[0]!.endpoints[0]!;
    await fetch(`http://${ip}:${port}${path}`);
  };

  it.each([0, 42, 255])('exec exits with the exit code %d of its command', async (code) => {
    expect(
      await runCtl('exec', 'talker', '--', 'sh', '-c', `echo out; echo err >&2; exit ${code}`),
    ).toEqual({
      code,
      stdout: 'out\n',
      stderr: 'err\n',
    });
  });

  it('exec exits with 127 for a missing program and with 126 for a program that cannot be executed', async () => {
    expect(await runCtl('exec', 'talker', '--', 'no-such-program')).toMatchObject({
      ...{
        code: 127,
        stdout: '',
        stderr: expect.stringMatching(
          /^cloudlessctl: container [0-9a-f]{12}: command: no executable no-such-program in PATH .*\n$/,
        ),
      },
    });
    expect(await runCtl('exec', 'talker', '--', '/etc/passwd')).toMatchObject({
      code: 126,
      stdout: '',
    });
  });

  it('exec forwards piped input to its command', async () => {
    const script = `printf 'through\\n' | "$NODE" "$BUNDLE" exec talker -- cat`;
    expect(await runToEnd('bash', ['-c', script], { env: shellEnv() })).toEqual({
      code: 0,
      stdout: 'through\n',
      stderr: '',
    });
  });

  it('exec exits with 3 for a missing workload and with 2 without a command', async () => {
    expect(await runCtl('exec', 'nothing', '--', 'true')).toMatchObject({ code: 3 });
    expect(await runCtl('exec', 'talker')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('no command given') as string,
    });
  });

  it('logs -f follows a log until SIGINT and exits with 130, and logs prints the log', async () => {
    await requestPath('/before');
    const following = cluster.startCtl('logs', 'talker', '-f', '--stream', 'stdout');
    try {
      await following.waitForLine((line) => line === '/before');
      await requestPath('/after');
      await requestPath('/error');
      await requestPath('/last');
      await following.waitForLine((line) => line === '/last');
      expect(await following.kill('SIGINT')).toBe(130);
      expect(following.lines).toEqual(['up', '/before', '/after', '/last']);
    } finally {
      await following.kill('SIGKILL');
    }
    expect(await getOutput('logs', 'talker', '--stream', 'stderr')).toBe('up\n/error\n');
    expect(await getOutput('logs', 'talker', '--stream', 'stdout', '--tail', '1')).toBe('/last\n');
  });

  it('events --watch follows events until SIGINT and exits with 130', async () => {
    const watching = cluster.startCtl('events', '--watch', '--workload', 'talker', '-o', 'json');
    try {
      await watching.waitForLine((line) => line.includes('"WorkloadCreated"'));
      await cluster.client.updateWorkload({
        name: 'talker',
        spec: { annotations: { seen: 'yes' } },
      });
      const event = await watching.waitForLine((line) => line.includes('"WorkloadUpdated"'));
      expect(JSON.parse(event)).toMatchObject({
        namespace: 'default',
        workload: 'talker',
        severity: 'INFO',
        replicaId: '',
      });
      expect(await watching.kill('SIGINT')).toBe(130);
    } finally {
      await watching.kill('SIGKILL');
    }
    await cluster.waitUntilSettled('talker');
  });
});

describe('cloudlessctl', () => {
  beforeAll(async () => {
    await cluster.client.createWorkload({
      name: 'shown',
      spec: { ...QUICK, command: ['sleep', '1000'], replicas: 0 },
    });
    await cluster.waitUntilSettled('shown');
  });

  it('get -o json prints JSON with zero values', async () => {
    const workload = await getOutput('get', 'workload', 'shown', '-o', 'json');
    expect(workload).toContain('"replicas": 0');
    expect(JSON.parse(workload)).toMatchObject({
      name: 'shown',
      spec: { image: '', replicas: 0 },
      status: { readyReplicas: 0, reason: '', replicas: [] },
    });
    const list = JSON.parse(await getOutput('get', 'workloads', '-o', 'json')) as {
      readonly workloads: readonly unknown[];
    };
    expect(list.workloads).toContainEqual(expect.objectContaining({ name: 'shown' }));
    expect(JSON.parse(await getOutput('get', 'workloads', '-n', 'empty', '-o', 'json'))).toEqual({
      workloads: [],
    });
    expect(JSON.parse(await getOutput('get', 'nodes', '-o', 'json'))).toMatchObject({
      nodes: [{ id: 'agent-1', cordoned: false }, { id: 'agent-2' }],
    });
  });

  it('get -o yaml prints YAML with zero values', async () => {
    const lines = (await getOutput('get', 'workload', 'shown', '-o', 'yaml')).split('\n');
    for (const line of [
      'name: shown',
      '  replicas: 0',
      '  readyReplicas: 0',
      '  image: ""',
      '    - "1000"',
      'generation: "1"',
    ])
      expect(lines).toContain(line);
  });

  it('get prints a table with a row for each workload, or that there is none', async () => {
    const [head, ...lines] = (await getOutput('get', 'workloads')).trim().split('\n');
    expect(head?.split(/ {2,}/)).toEqual([
      'NAMESPACE',
      'NAME',
      'STATUS',
      'READY',
      'UPDATED',
      'AGE',
      'REASON',
    ]);
    expect(
      lines
        .find((line) => line.includes(' shown '))
        ?.split(/ {2,}/)
        .slice(0, 4),
    ).toEqual(['default', 'shown', 'Running', '0/0']);
    expect(await runCtl('get', 'workloads', '-n', 'empty')).toEqual({
      code: 0,
      stdout: '',
      stderr: 'no workloads in namespace empty\n',
    });
  });

  it('describe prints spec, status and events', async () => {
    const text = await getOutput('describe', 'shown');
    for (const part of [
      'Name:        shown',
      '  Command:   sleep 1000',
      '  Phase:          Running',
      'WorkloadCreated',
    ])
      expect(text).toContain(part);
    const node = await getOutput('describe', 'node', 'agent-1');
    expect(node).toMatch(/^ {2}Capabilities: +runtime\.process/m);
    expect(node).toMatch(/^ {2}Network proxy: +none/m);
  });

  it('explain prints a reason for each node', async () => {
    await cluster.client.createWorkload({
      name: 'far',
      spec: { command: ['true'], placement: { zones: ['zone-x'] } },
    });
    await cluster.waitForWorkload('far', ({ status }) => status!.reason.includes('not in zone'));
    const text = await getOutput('explain', 'far');
    expect(text).toContain(
      '1 of 1 replicas without a node: no node fits: not in zone zone-x: 2 of 2 nodes',
    );
    for (const node of ['agent-1', 'agent-2'])
      expect(text).toMatch(new RegExp(`^${node} +zone-[ab] +no .*zone`, 'm'));
    expect(JSON.parse(await getOutput('explain', 'far', '-o', 'json'))).toMatchObject({
      name: 'far',
      nodes: [{ nodeId: 'agent-1', fits: false }, {}],
    });
    await getOutput('delete', 'far', '--wait');
  });

  it('events --workload prints only events of that workload', async () => {
    const text = await getOutput('events', '--workload', 'shown');
    expect(text).toMatch(/^ID +AGE +SEVERITY +REASON +ABOUT +MESSAGE$/m);
    expect(text).toContain('workload default/shown was created');
    expect(text).not.toContain('talker');
  });
});

describe('cloudlessctl node', () => {
  it('shows labels, taints and cordons in the node list, and removes them', async () => {
    expect(await getOutput('node', 'label', 'agent-1', 'disk=ssd', 'rack=7')).toBe(
      'node agent-1: labelled\n',
    );
    expect(await getOutput('node', 'taint', 'agent-1', 'dedicated=db:NO_SCHEDULE')).toBe(
      'node agent-1: tainted\n',
    );
    expect(await getOutput('node', 'cordon', 'agent-1')).toBe('node agent-1: cordoned\n');
    const wide = (await getOutput('node', 'list', '-o', 'wide'))
      .split('\n')
      .find((line) => line.startsWith('agent-1 '));
    for (const part of ['Ready,Cordoned', 'dedicated=db:NoSchedule', 'disk=ssd', 'rack=7'])
      expect(wide).toContain(part);
    expect(
      JSON.parse(await getOutput('node', 'list', '-l', 'disk=ssd', '-o', 'json')),
    ).toMatchObject({
      nodes: [{ id: 'agent-1' }],
    });
    await getOutput('node', 'uncordon', 'agent-1');
    await getOutput('node', 'taint', 'agent-1', 'dedicated:NO_SCHEDULE-');
    await getOutput('node', 'label', 'agent-1', 'disk-', 'rack-');
    expect(await cluster.client.getNode({ nodeId: 'agent-1' })).toMatchObject({
      cordoned: false,
      taints: [],
      labels: {},
    });
  });

  it.each([
    {
      args: ['node', 'taint', 'agent-1', 'a=b:NEVER'],
      message:
        'a=b:NEVER: unknown effect, expected one of NoSchedule, PreferNoSchedule, NoExecute, got',
    },
    {
      args: ['node', 'taint', 'agent-1', 'a=b'],
      message: 'expected key=value:EFFECT to set a taint',
    },
    { args: ['node', 'label', 'agent-1', 'disk'], message: 'disk' },
  ])('rejects $args', async ({ args, message }) => {
    expect(await runCtl(...args)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining(message) as string,
    });
    expect(await cluster.client.getNode({ nodeId: 'agent-1' })).toMatchObject({
      taints: [],
      labels: {},
    });
  });
});

describe('cloudlessctl', () => {
  it('prints its version also without a coordinator', async () => {
    const offline = ['--server', 'http://127.0.0.1:1'];
    const { version, commit } = JSON.parse(
      await getOutput('version', '--client', '-o', 'json', ...offline),
    ) as { readonly version: string; readonly commit?: string };
    const text = `cloudlessctl ${version}${commit === undefined ? '' : `+${commit}`}\n`;
    expect(await getOutput('version', '--client', ...offline)).toBe(text);
    expect(await runCtl('version', ...offline)).toMatchObject({
      code: 5,
      stdout: text,
    });
    expect(await getOutput('--version')).toBe(text);
    expect(version).toMatch(/^\d+\.\d+\.\d+$/);
  });

  it('prints its commands with --help', async () => {
    const text = await getOutput('--help');
    for (const verb of ['workload', 'node', 'apply', 'logs', 'exec', 'explain', 'events'])
      expect(text).toMatch(new RegExp(`^ {2}${verb}\\b`, 'm'));
    expect(text.replaceAll(/\s+/g, ' ')).toContain(
      'Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 conflict, 5 unavailable, 6 timeout, 7 no capacity, 8 rollout failed, 9 not confirmed',
    );
  });

  it.each([
    { words: ['workload', 'sc'], candidates: ['scale'] },
    { words: ['scale', 'talk'], candidates: ['talker'] },
    { words: ['node', 'describe', ''], candidates: ['agent-1', 'agent-2'] },
    { words: ['workload', 'scale', '--wa'], candidates: ['--wait', '--wait-capacity'] },
  ])('completes $words to $candidates in bash', async ({ words, candidates }) => {
    const script = `
      cloudlessctl() { "$NODE" "$BUNDLE" "$@"; }
      source <(cloudlessctl completion bash)
      COMP_WORDS=(cloudlessctl "$@") COMP_CWORD=$#
      _cloudlessctl cloudlessctl && printf '%s\\n' "\${COMPREPLY[@]}"`;
    const { code, stdout, stderr } = await runToEnd('bash', ['-c', script, 'bash', ...words], {
      env: shellEnv(),
    });
    expect({ code, stderr, candidates: stdout.trim().split('\n') }).toEqual({
      code: 0,
      stderr: '',
      candidates,
    });
  });

  it.each(['zsh', 'fish'])('prints the completion script for %s', async (shell) => {
    expect(await getOutput('completion', shell)).toContain(' __complete -- ');
  });
});
