import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError } from '@connectrpc/connect';
import {
  PolicyRule_Type as RuleType,
  PolicySchema,
  PolicyVerdictSchema,
  PolicyVerdict_Decision as Decision,
  type CreatePolicyRequest,
  type TestPolicyRequest,
  type UpdatePolicyRequest,
} from '@cloudless/api';
import { NOW_MS, runCli, type CliOptions } from '../../testing/run-cli.js';

const NODE_ACCESS = `kind: Policy
name: node-access
spec:
  namespace: '*'
  rules:
    - name: privileged
      type: privileged-mode
      conditions:
        - field: spec.replicas
          operator: IN
          value: [1, 2]
`;

const STORED = create(PolicySchema, {
  ...{ name: 'node-access', uid: 'aa', generation: 4n },
  createdAt: timestampFromMs(NOW_MS - 60_000),
  spec: {
    ...{ namespace: '*', enabled: true },
    rules: [{ name: 'privileged', type: RuleType.PRIVILEGED_MODE }],
  },
});

const DENIED = create(PolicyVerdictSchema, {
  ...{ namespace: 'default', name: 'web', decision: Decision.DENY, policy: 'node-access' },
  violations: [
    {
      ...{ policy: 'node-access', rule: 'privileged', field: 'spec.security.privileged' },
      ...{ value: 'true', allowed: 'false' },
    },
  ],
  totalViolations: 1,
});

const policies: CliOptions['policies'] = {
  getPolicy: ({ name }) => {
    if (name === 'node-access') return STORED;
    throw new ConnectError(`policy "${name}" not found`, Code.NotFound);
  },
  listPolicies: () => ({ policies: [STORED], nextPageToken: '', revision: 1n }),
};

describe('policy apply', () => {
  it('creates a policy that does not exist', async () => {
    const requests: CreatePolicyRequest[] = [];
    const text = NODE_ACCESS.replace('node-access', 'new');
    const result = await runCli(['policy', 'apply', '-f', 'p.yaml'], {
      files: { 'p.yaml': text },
      policies: {
        ...policies,
        createPolicy: (request) => (requests.push(request), STORED),
      },
    });
    expect(result).toMatchObject({ exitCode: 0, stdout: 'policy new: created\n', stderr: '' });
    expect(requests).toMatchObject([
      {
        name: 'new',
        spec: {
          namespace: '*',
          rules: [
            {
              type: RuleType.PRIVILEGED_MODE,
              conditions: [
                {
                  value: {
                    kind: {
                      case: 'listValue',
                      value: {
                        values: [
                          { kind: { case: 'numberValue', value: 1 } },
                          { kind: { case: 'numberValue', value: 2 } },
                        ],
                      },
                    },
                  },
                },
              ],
            },
          ],
        },
      },
    ]);
  });

  it.each([
    ['updated', 5n],
    ['unchanged', 4n],
  ])('replaces all fields of a stored policy: %s', async (change, generation) => {
    const requests: UpdatePolicyRequest[] = [];
    const { stdout } = await runCli(['policy', 'apply', '-f', 'p.yaml'], {
      files: { 'p.yaml': NODE_ACCESS },
      policies: {
        ...policies,
        updatePolicy: (request) => (requests.push(request), { ...STORED, generation }),
      },
    });
    expect(stdout).toBe(`policy node-access: ${change}\n`);
    expect(requests).toMatchObject([
      {
        ...{ name: 'node-access', expectedGeneration: 4n },
        updateMask: { paths: ['namespace', 'enabled', 'priority', 'action', 'rules'] },
      },
    ]);
  });

  it('refuses an older -o yaml that would overwrite newer changes, and applies other files', async () => {
    const updates: UpdatePolicyRequest[] = [];
    const updating: typeof policies = {
      ...policies,
      updatePolicy: (request) => (updates.push(request), STORED),
    };
    const printed = (await runCli(['policy', 'get', 'node-access', '-o', 'yaml'], { policies }))
      .stdout;
    expect(printed).toContain('generation: "4"\n');
    const apply = (text: string) =>
      runCli(['policy', 'apply', '-f', 'p.yaml'], {
        files: { 'p.yaml': text },
        policies: updating,
      });
    const older = printed.replace('generation: "4"', 'generation: "3"');
    const changed = (text: string): string => text.replace(/priority: \d+/, 'priority: 77');
    expect(changed(older)).not.toBe(older);
    expect(await apply(changed(older))).toMatchObject({
      exitCode: 4,
      stderr:
        'cloudlessctl: policy node-access: the manifest has generation 3, and the object in the cluster has generation 4: applying it would overwrite newer changes. Print the current object with "cloudlessctl policy get node-access -o yaml" and edit it, or remove the line "generation" to overwrite the newer changes\n',
    });
    expect(updates).toEqual([]);
    for (const text of [older, changed(printed), changed(older).replace('generation: "3"\n', '')])
      expect(await apply(text)).toMatchObject({ exitCode: 0, stderr: '' });
    expect(updates).toHaveLength(3);
  });

  it.each([
    ['kind: Workload\nname: a\nspec: {}', 'p.yaml:1:7: kind: expected Policy'],
    ['name: a', 'p.yaml:1:1: spec: is missing'],
    ['spec: {}', 'p.yaml:1:1: name: is missing'],
    ['name: a\nspce: {}', 'spce: unknown key'],
    ['name: a\nspec:\n  ruls: []', 'p.yaml:3:3: spec.ruls: unknown key'],
    ['name: a\nspec: {rules: [{type: NONE}]}', 'spec.rules[0].type: expected one of'],
    ['[{name: a, spec: {}}, {name: a, spec: {}}]', 'the policy a is declared twice'],
    [
      'name: a\nspec: {rules: [{conditions: [{value: {b: 1}}]}]}',
      'expected a string, a number, true, false, or a list of them, got a map',
    ],
    [
      'name: a\nspec: {rules: [{conditions: [{value: 9007199254740993}]}]}',
      'expected a whole number of at most 2^53 - 1',
    ],
    [
      'name: a\nspec:\n  rules:\n    - type: EGRESS_DESTINATION\n      egressDestination: {allowed: [{cdir: "::/0"}]}',
      'p.yaml:5:38: spec.rules[0].egressDestination.allowed[0].cdir: unknown key; did you mean cidr?',
    ],
    ['', 'contains no policy'],
  ])('applies nothing for %j: %s', async (text, message) => {
    const { exitCode, stderr } = await runCli(['policy', 'apply', '-f', 'p.yaml'], {
      files: { 'p.yaml': text },
      policies,
    });
    expect({ exitCode, stderr }).toEqual({ exitCode: 2, stderr: expect.stringContaining(message) });
    expect(stderr).toContain('nothing was applied');
  });

  it('names both files that declare a policy', async () => {
    const { stderr } = await runCli(['policy', 'apply', '-f', 'a.yaml', '-f', 'b.yaml'], {
      files: { 'a.yaml': NODE_ACCESS, 'b.yaml': NODE_ACCESS },
      policies,
    });
    expect(stderr).toContain('b.yaml: the policy node-access is already declared in a.yaml');
  });

  it('asks for a file', async () => {
    const { exitCode, stderr } = await runCli(['policy', 'apply'], { policies });
    expect(exitCode).toBe(2);
    expect(stderr).toContain('give the policies with -f FILE');
  });
});

describe('policy list, get and delete', () => {
  it('list policies with their rules', async () => {
    const { stdout } = await runCli(['policy', 'list'], { policies });
    expect(stdout).toMatch(/^NAME +NAMESPACE +ACTION +PRIORITY +ENABLED +RULES +AGE/);
    expect(stdout).toMatch(/node-access +all +deny +0 +yes +privileged +60s/);
  });

  it('print manifests that apply accepts', async () => {
    const { stdout } = await runCli(['policy', 'get', 'node-access', '-o', 'manifest'], {
      policies,
    });
    const requests: UpdatePolicyRequest[] = [];
    await runCli(['policy', 'apply', '-f', '-'], {
      stdin: { kind: 'other', text: stdout },
      policies: { ...policies, updatePolicy: (request) => (requests.push(request), STORED) },
    });
    expect(requests[0]?.spec).toEqual(STORED.spec);
  });

  it('name a policy that does not exist', async () => {
    const { exitCode, stderr } = await runCli(['policy', 'get', 'other'], { policies });
    expect(exitCode).toBe(3);
    expect(stderr).toContain('policy "other" not found');
  });

  it('delete each named policy', async () => {
    const names: string[] = [];
    const { stdout } = await runCli(['policy', 'delete', 'a', 'b'], {
      policies: { deletePolicy: ({ name }) => (names.push(name), {}) },
    });
    expect(names).toEqual(['a', 'b']);
    expect(stdout).toBe('policy a: deleted\npolicy b: deleted\n');
  });
});

describe('policy test, report and explain', () => {
  it('send the policies of files, and end with exit code 4 for a denied workload', async () => {
    const requests: TestPolicyRequest[] = [];
    const { exitCode, stdout, stderr } = await runCli(['policy', 'test', '-f', 'p.yaml'], {
      files: { 'p.yaml': NODE_ACCESS },
      policies: {
        testPolicy: (request) => (requests.push(request), { verdicts: [DENIED] }),
      },
    });
    expect(exitCode).toBe(4);
    expect(stdout).toMatch(
      /default +web +denied +node-access +privileged +deny +spec\.security\.privileged +true +false/,
    );
    expect(stderr).toContain('the policies would deny 1 workload');
    expect(requests).toMatchObject([
      {
        namespace: 'default',
        name: '',
        violationsOnly: true,
        candidates: [{ name: 'node-access' }],
      },
    ]);
  });

  it('test one workload by its name', async () => {
    const requests: TestPolicyRequest[] = [];
    const { exitCode, stdout } = await runCli(['policy', 'test', 'shop/web', '-f', 'p.yaml'], {
      files: { 'p.yaml': NODE_ACCESS },
      policies: {
        testPolicy: (request) => (
          requests.push(request),
          { verdicts: [create(PolicyVerdictSchema, { namespace: 'shop', name: 'web' })] }
        ),
      },
    });
    expect({ exitCode, requests }).toMatchObject({
      exitCode: 0,
      requests: [{ namespace: 'shop', name: 'web', violationsOnly: false }],
    });
    expect(stdout).toContain('allowed');
  });

  it('report the violations of all namespaces with exit code 0', async () => {
    const requests: TestPolicyRequest[] = [];
    const { exitCode, stdout } = await runCli(['policy', 'report', '-A', '-o', 'json'], {
      policies: {
        testPolicy: (request) => (requests.push(request), { verdicts: [DENIED] }),
      },
    });
    expect(exitCode).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({ verdicts: [{ name: 'web', decision: 'DENY' }] });
    expect(requests).toMatchObject([{ namespace: '', candidates: [] }]);
  });

  it('report that no workload violates a policy', async () => {
    const { stdout, stderr } = await runCli(['policy', 'report'], {
      policies: { testPolicy: () => ({ verdicts: [] }) },
    });
    expect(stdout + stderr).toContain('no workload violates a policy');
  });

  it.each([
    [DENIED, 'policy node-access', 'denied'],
    [
      create(PolicyVerdictSchema, { name: 'web', byDefault: true }),
      'no policy selects the workload',
      'allowed',
    ],
    [create(PolicyVerdictSchema, { name: 'web' }), 'several policies together', 'allowed'],
  ])('explain who decided', async (verdict, decider, decision) => {
    const { exitCode, stdout } = await runCli(['policy', 'explain', 'web'], {
      policies: { testPolicy: () => ({ verdicts: [verdict] }) },
    });
    expect(exitCode).toBe(0);
    expect(stdout).toContain(decider);
    expect(stdout).toContain(decision);
  });
});
