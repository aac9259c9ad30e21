import { ConnectError } from '@connectrpc/connect';
import fc from 'fast-check';
import {
  PolicyDenialSchema,
  PolicyRule_Type as Type,
  PolicySpec_Action as Action,
  PolicyVerdict_Decision as Decision,
  createPolicyClient,
  readErrorDetails,
  type PolicyClient,
} from '@cloudless/api';
import { ApiTestBed } from '../testing/api-test-bed.js';
import { RULE_CASES, aPolicySpec } from '../testing/policies.js';

let bed: ApiTestBed;
let policies: PolicyClient;
beforeEach(async () => {
  bed = await ApiTestBed.open();
  policies = createPolicyClient(bed.transport);
});
afterEach(() => bed.stop());

const privileged = { image: 'nginx:alpine', security: { privileged: true } };
const denyPrivileged = () =>
  policies.createPolicy({
    name: 'privileged',
    spec: aPolicySpec({ type: Type.PRIVILEGED_MODE }),
  });
const DENIED =
  '[permission_denied] policies deny workload "default/web": policy "privileged", rule "rule": spec.security.privileged is true; allowed is';

async function readDenial(call: Promise<unknown>) {
  const error = ConnectError.from(await call.catch((reason: unknown) => reason));
  return {
    reason: readErrorDetails(error).reason,
    denial: error.findDetails(PolicyDenialSchema)[0],
  };
}

describe('admission by policies', () => {
  it.each(RULE_CASES.map((each) => ({ ...each, type: Type[each.rule.type] })))(
    'refuses and accepts workloads by a rule of type $type',
    async ({ rule, refused, accepted, field }) => {
      await policies.createPolicy({ name: 'policy', spec: aPolicySpec(rule) });
      const { reason, denial } = await readDenial(
        bed.client.createWorkload({ name: 'web', spec: refused }),
      );
      expect(reason).toBe('POLICY_DENIED');
      expect(denial).toMatchObject({ namespace: 'default', name: 'web', totalViolations: 1 });
      expect(denial?.violations).toMatchObject([{ policy: 'policy', rule: 'rule', failed: false }]);
      expect(denial?.violations[0]?.field.startsWith(field)).toBe(true);
      await bed.client.createWorkload({ name: 'web', spec: accepted });
    },
  );

  it('has a case for each type of rule', () => {
    const types = Object.values(Type).filter((type): type is Type => typeof type === 'number');
    expect(RULE_CASES.map(({ rule }) => rule.type)).toEqual(
      types.filter((type) => type !== Type.UNSPECIFIED),
    );
  });

  it('judges create, update, scale up, undo, restart and plans, and never fewer replicas', async () => {
    await bed.client.createWorkload({ name: 'web', spec: { ...privileged, replicas: 3 } });
    await bed.client.updateWorkload({ name: 'web', spec: { image: 'nginx:1' } });
    const scale = (replicas: number) => ({ name: 'web', replicas });
    const { id } = await bed.client.createPlan({
      changes: [{ change: { case: 'scale', value: scale(4) } }],
    });
    await denyPrivileged();
    const calls = {
      create: () => bed.client.createWorkload({ name: 'web2', spec: privileged }),
      update: () => bed.client.updateWorkload({ name: 'web', spec: { image: 'nginx:2' } }),
      scale: () => bed.client.scaleWorkload(scale(4)),
      undo: () => bed.client.undoRollout({ name: 'web', toVersion: 1 }),
      restart: () => bed.client.restartRollout({ name: 'web' }),
      plan: () => bed.client.planWorkload({ name: 'web', spec: { image: 'nginx:2' } }),
      ...Object.fromEntries(
        (
          [
            { case: 'apply', value: { name: 'web', spec: { image: 'nginx:2' } } },
            { case: 'create', value: { name: 'web2', spec: privileged } },
            { case: 'update', value: { name: 'web', spec: { image: 'nginx:2' } } },
            { case: 'scale', value: scale(4) },
            { case: 'undo', value: { name: 'web', toVersion: 1 } },
            { case: 'restart', value: { name: 'web' } },
          ] as const
        ).map((change) => [
          `CreatePlan ${change.case}`,
          () => bed.client.createPlan({ changes: [{ change }], validateOnly: true }),
        ]),
      ),
      execute: () => bed.client.executePlan({ id }),
    };
    for (const [name, call] of Object.entries(calls))
      expect([name, (await readDenial(call())).reason]).toEqual([name, 'POLICY_DENIED']);
    await expect(calls.update()).rejects.toThrow(DENIED);
    await bed.client.updateWorkload({ name: 'web', spec: { replicas: 2 } });
    await bed.client.scaleWorkload(scale(1));
    await bed.client.scaleWorkload(scale(0));
    expect((await bed.client.getWorkload({ name: 'web' })).generation).toBe(5n);
    await bed.client.deleteWorkload({ name: 'web' });
  });

  it('records a refusal in the audit log, and changes nothing', async () => {
    await denyPrivileged();
    await expect(bed.client.createWorkload({ name: 'web', spec: privileged })).rejects.toThrow(
      DENIED,
    );
    expect(bed.auditRecords).toEqual(['CreatePolicy ok', 'CreateWorkload permission_denied']);
    expect(bed.state.view().workloadByName('default', 'web')).toBeUndefined();
  });

  it('records violations of AUDIT policies as one event, and allows', async () => {
    const spec = aPolicySpec({ type: Type.PRIVILEGED_MODE }, { action: Action.AUDIT });
    await policies.createPolicy({ name: 'privileged', spec });
    await bed.client.createWorkload({ name: 'web', spec: privileged });
    expect(bed.events('PolicyAudit').map(({ message }) => message)).toEqual([
      expect.stringContaining(
        'policies with the action AUDIT would deny workload default/web: policy "privileged", rule "rule": spec.security.privileged is true',
      ),
    ]);
    const apply = (name: string) => ({
      change: { case: 'create' as const, value: { name, spec: privileged } },
    });
    const { id } = await bed.client.createPlan({ changes: [apply('a'), apply('b')] });
    await bed.client.executePlan({ id });
    const event = bed.events('PolicyAudit')[1];
    expect(event?.message).toMatch(/workload default\/a: .*; workload default\/b: /);
    expect(bed.events('PolicyAudit')).toHaveLength(2);
  });

  it.each([
    { name: 'throws', expression: 'spec.ports[5].container_port == 80' },
    {
      name: 'spends the budget',
      expression:
        'spec.args.all(a, spec.args.all(b, a.contains(b) || !a.contains(b) || a == b || a != b))',
    },
    { name: 'returns a text', expression: 'workload_name' },
  ])('denies when an expression $name', async ({ expression }) => {
    const rule = {
      type: Type.EXPRESSION,
      config: { case: 'expression' as const, value: { expression } },
    };
    await policies.createPolicy({ name: 'broken', spec: aPolicySpec(rule) });
    const args = Array.from({ length: 500 }, (_, index) => `argument-${index}`);
    const { denial } = await readDenial(
      bed.client.createWorkload({ name: 'web', spec: { image: 'nginx', args } }),
    );
    expect(denial?.violations).toMatchObject([{ policy: 'broken', rule: 'rule', failed: true }]);
  });

  it('lets a policy with a higher priority exempt workloads', async () => {
    await denyPrivileged();
    const rule = {
      type: Type.EXPRESSION,
      config: { case: 'expression' as const, value: { expression: 'workload_name == "web"' } },
    };
    await policies.createPolicy({
      name: 'exempt',
      spec: aPolicySpec(rule, { action: Action.ALLOW, priority: 1 }),
    });
    await bed.client.createWorkload({ name: 'web', spec: privileged });
    const { reason } = await readDenial(
      bed.client.createWorkload({ name: 'other', spec: privileged }),
    );
    expect(reason).toBe('POLICY_DENIED');
  });

  it('keeps a running rollout, and judges its next version, when a policy changes', async () => {
    await bed.client.createWorkload({ name: 'web', spec: { ...privileged, replicas: 2 } });
    const { generation } = await bed.client.updateWorkload({
      name: 'web',
      spec: { image: 'nginx:1' },
    });
    await denyPrivileged();
    await bed.client.pauseRollout({ name: 'web' });
    await bed.client.resumeRollout({ name: 'web' });
    expect((await bed.client.getWorkload({ name: 'web' })).generation).toBe(generation);
    await expect(
      bed.client.updateWorkload({ name: 'web', spec: { image: 'nginx:2' } }),
    ).rejects.toThrow(DENIED);
    await bed.client.updateWorkload({ name: 'web', spec: { security: { privileged: false } } });
  });
});

describe('TestPolicy', () => {
  it('gives for all stored workloads what it gives for each, as admission does', async () => {
    const images = fc.constantFrom('nginx', 'registry.example/web:1');
    const spec = fc.record({
      image: images,
      replicas: fc.integer({ min: 0, max: 3 }),
      security: fc.record({ privileged: fc.boolean(), runAsNonRoot: fc.boolean() }),
    });
    const rules = fc.subarray(RULE_CASES.slice());
    const actions = fc.constantFrom(Action.DENY, Action.ALLOW, Action.AUDIT);
    const policy = fc.record({ rules, action: actions, priority: fc.integer({ min: 0, max: 2 }) });
    await fc.assert(
      fc.asyncProperty(
        fc.array(spec, { minLength: 1, maxLength: 4 }),
        fc.array(policy, { maxLength: 3 }),
        async (specs, given) => {
          const own = await ApiTestBed.open();
          const client = createPolicyClient(own.transport);
          for (const [index, each] of specs.entries())
            await own.client.createWorkload({ name: `web-${index}`, spec: each });
          for (const [index, { rules: cases, ...rest }] of given.entries())
            if (cases.length > 0)
              await client.createPolicy({
                name: `policy-${index}`,
                spec: {
                  ...{ ...rest, namespace: '*' },
                  rules: cases.map(({ rule }, number) => ({ ...rule, name: `rule-${number}` })),
                },
              });
          const { verdicts } = await client.testPolicy({ namespace: 'default' });
          expect(verdicts).toHaveLength(specs.length);
          for (const verdict of verdicts) {
            const { name } = verdict;
            const single = await client.testPolicy({ name });
            expect(single.verdicts).toEqual([verdict]);
            const { reason } = await readDenial(own.client.restartRollout({ name }));
            expect(reason === 'POLICY_DENIED').toBe(verdict.decision === Decision.DENY);
          }
          await own.stop();
        },
      ),
      { numRuns: 8 },
    );
  });

  it('tests candidates in place of stored policies, and leaves out what violates nothing', async () => {
    await denyPrivileged();
    await bed.client.createWorkload({ name: 'web', spec: { image: 'nginx' } });
    await bed.client.createWorkload({ name: 'other', spec: { image: 'registry.example/web' } });
    const candidates = [
      {
        name: 'privileged',
        spec: aPolicySpec({
          type: Type.IMAGE_REGISTRY,
          config: { case: 'imageRegistry', value: { allowed: ['registry.example'] } },
        }),
      },
    ];
    const { verdicts } = await policies.testPolicy({ candidates, violationsOnly: true });
    expect(verdicts).toMatchObject([
      { name: 'web', decision: Decision.DENY, policy: 'privileged', totalViolations: 1 },
    ]);
    expect((await policies.testPolicy({ violationsOnly: true })).verdicts).toEqual([]);
    const { verdicts: one } = await policies.testPolicy({ name: 'new', spec: privileged });
    expect(one).toMatchObject([{ name: 'new', decision: Decision.DENY }]);
  });

  it('gives all workloads in pages', async () => {
    for (const name of ['a', 'b', 'c']) await bed.client.createWorkload({ name, spec: privileged });
    const first = await policies.testPolicy({ pageSize: 2 });
    const { nextPageToken: pageToken } = first;
    const second = await policies.testPolicy({ pageSize: 2, pageToken });
    expect([...first.verdicts, ...second.verdicts].map(({ name }) => name)).toEqual([
      ...['a', 'b', 'c'],
    ]);
    expect(second.nextPageToken).toBe('');
  });

  it('refuses fields that would be ignored', async () => {
    await expect(policies.testPolicy({ spec: privileged, violationsOnly: true })).rejects.toThrow(
      '[invalid_argument] violations_only: is only for tests of all stored',
    );
  });
});
