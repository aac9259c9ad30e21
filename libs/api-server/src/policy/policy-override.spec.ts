import { Code, ConnectError } from '@connectrpc/connect';
import {
  CoordinatorService,
  ErrorReason,
  Event_Category as Category,
  Event_Severity as Severity,
  PlanWarning_Kind as WarningKind,
  PolicyRule_Type as Type,
  PolicySpec_Action as Action,
  createPolicyClient,
  readErrorDetails,
} from '@cloudless/api';
import { ManualClock } from '@cloudless/base/testing';
import { ApiTestBed } from '../testing/api-test-bed.js';
import { aPolicySpec } from '../testing/policies.js';
import { TestIdentity, createTokenClient } from '../testing/test-identity.js';

const privileged = { image: 'nginx:alpine', security: { privileged: true } };
const REASON = 'incident 4711, approved by ada';
const policyOverride = { reason: REASON };

let bed: ApiTestBed;
beforeEach(async () => {
  bed = await ApiTestBed.open();
  await bed.client.createWorkload({ name: 'web', spec: { ...privileged, replicas: 1 } });
  await bed.client.updateWorkload({ name: 'web', spec: { image: 'nginx:1' } });
});
afterEach(() => bed.stop());

const policies = () => createPolicyClient(bed.transport);
const deny = () =>
  policies().createPolicy({
    name: 'privileged',
    spec: aPolicySpec({ type: Type.PRIVILEGED_MODE, name: 'no-privileges' }),
  });
const scaleChange = (extra: object = {}) => ({
  change: { case: 'scale' as const, value: { name: 'web', replicas: 3, ...extra } },
});

/** Each call that may override policies, for the workload `web` or a new workload. */
const CALLS: Readonly<Record<string, (override: object) => Promise<unknown>>> = {
  CreateWorkload: (o) => bed.client.createWorkload({ name: 'new', spec: privileged, ...o }),
  UpdateWorkload: (o) => bed.client.updateWorkload({ name: 'web', spec: { image: 'b' }, ...o }),
  ScaleWorkload: (o) => bed.client.scaleWorkload({ name: 'web', replicas: 3, ...o }),
  UndoRollout: (o) => bed.client.undoRollout({ name: 'web', toVersion: 1, ...o }),
  RestartRollout: (o) => bed.client.restartRollout({ name: 'web', ...o }),
};

async function codeOf(call: Promise<unknown>) {
  const error = ConnectError.from(await call.catch((reason: unknown) => reason));
  return { code: error.code, reason: readErrorDetails(error).reason, text: error.rawMessage };
}

describe('override of policies', () => {
  it.each(Object.entries(CALLS))(
    'lets a denied %s through, and records the reason with the change',
    async (rpc, call) => {
      await deny();
      expect((await codeOf(call({}))).reason).toBe('POLICY_DENIED');
      expect(bed.events('PolicyOverridden')).toEqual([]);
      await call({ policyOverride });
      const name = rpc === 'CreateWorkload' ? 'new' : 'web';
      const [event, ...others] = bed.events('PolicyOverridden');
      expect(others).toEqual([]);
      expect(event).toMatchObject({
        ...{ category: Category.SECURITY, severity: Severity.WARNING },
        ...{ namespace: 'default', workload: name, errorReason: ErrorReason.POLICY_DENIED },
        message: `policies were overridden ("${REASON}") that deny workload default/${name}: policy "privileged", rule "no-privileges" (spec.security.privileged)`,
      });
      const audit = bed.events(rpc).at(-1);
      expect(audit).toMatchObject({ audit: { result: 'ok', overrideReason: REASON } });
      expect(audit?.message).toContain(`called ${rpc} on default/${name}, overriding policies`);
      // The audit record and the event are part of the transaction of the change.
      expect(audit?.id).toBe(event?.causeId);
    },
  );

  it('lets a plan through whose policies have changed since, with one event for all workloads', async () => {
    await bed.client.createWorkload({ name: 'api', spec: privileged });
    const restart = { change: { case: 'restart' as const, value: { name: 'api' } } };
    const { id } = await bed.client.createPlan({ changes: [scaleChange(), restart] });
    await deny();
    expect((await codeOf(bed.client.executePlan({ id }))).reason).toBe('POLICY_DENIED');
    await bed.client.executePlan({ id, policyOverride });
    expect(bed.events('PolicyOverridden').map(({ message }) => message)).toEqual([
      expect.stringMatching(/that deny workload default\/web: .*; workload default\/api: policy/),
    ]);
    expect(bed.events('ExecutePlan').at(-1)?.audit?.overrideReason).toBe(REASON);
  });

  it('shows in a plan what would be overridden, and requires an override again for the execution', async () => {
    await deny();
    const apply = (o: object) => ({
      change: { case: 'apply' as const, value: { name: 'new', spec: privileged, ...o } },
    });
    const plan = (o: object) => bed.client.createPlan({ changes: [scaleChange(o), apply(o)] });
    expect((await codeOf(plan({}))).reason).toBe('POLICY_DENIED');
    const { id, workloads } = await plan({ policyOverride });
    for (const { warnings, warningDetails } of workloads) {
      expect(warningDetails).toMatchObject([{ kind: WarningKind.POLICY_OVERRIDDEN }]);
      expect(warnings).toEqual([
        expect.stringMatching(/^overridden policy "privileged", rule "no-privileges": spec.sec/),
      ]);
    }
    expect(bed.events('PolicyOverridden')).toEqual([]);
    expect(bed.events('CreatePlan').at(-1)?.audit?.overrideReason).toBe(REASON);
    expect((await codeOf(bed.client.executePlan({ id }))).reason).toBe('POLICY_DENIED');
    await bed.client.executePlan({ id, policyOverride });
    expect(bed.events('PolicyOverridden')).toHaveLength(1);
  });

  it('has no effect and no event when policies allow the change', async () => {
    for (const call of Object.values(CALLS)) await call({ policyOverride });
    expect(bed.events('PolicyOverridden')).toEqual([]);
    expect((await bed.client.getWorkload({ name: 'new' })).generation).toBe(1n);
  });

  it('overrides a stored policy that cannot be evaluated', async () => {
    const value = { expression: 'spec.ports[5].container_port == 80' };
    await policies().createPolicy({
      name: 'broken',
      spec: aPolicySpec({ type: Type.EXPRESSION, config: { case: 'expression', value } }),
    });
    await CALLS['CreateWorkload']?.({ policyOverride });
    expect(bed.events('PolicyOverridden')[0]?.message).toContain('policy "broken"');
  });

  it.each(['short', ' '.repeat(20), 'two lines\nof text', 'x'.repeat(513)])(
    'refuses the reason %j',
    async (reason) => {
      const { code, text } = await codeOf(
        bed.client.scaleWorkload({ name: 'web', replicas: 2, policyOverride: { reason } }),
      );
      expect([code, text]).toEqual([
        Code.InvalidArgument,
        expect.stringContaining('policy_override.reason'),
      ]);
    },
  );

  it('is no part of a simulation, which policies do not judge', async () => {
    const changes = [scaleChange({ policyOverride })];
    expect((await codeOf(bed.client.simulateCluster({ changes }))).text).toContain(
      'policy_override: must be absent',
    );
  });
});

describe('override of policies by callers with roles', () => {
  it('is refused unless the caller is admin of the whole cluster, also when not needed', async () => {
    const identity = await TestIdentity.create(new ManualClock().wallTime());
    await bed.stop();
    bed = await ApiTestBed.open({ identity });
    await identity.putAuthority(bed);
    const user = async (name: string, role: 'operator' | 'admin', namespace: string) =>
      createTokenClient(
        bed,
        CoordinatorService,
        await identity.putUser(bed, name, [{ role, namespace }]),
      );
    const admin = await user('root', 'admin', '');
    await admin.createWorkload({ name: 'web', spec: privileged });
    for (const other of [
      await user('ada', 'admin', 'default'),
      await user('bob', 'operator', ''),
    ]) {
      const calls = {
        create: other.createWorkload({ name: 'new', spec: privileged, policyOverride }),
        update: other.updateWorkload({ name: 'web', spec: { image: 'b' }, policyOverride }),
        scale: other.scaleWorkload({ name: 'web', replicas: 3, policyOverride }),
        undo: other.undoRollout({ name: 'web', policyOverride }),
        restart: other.restartRollout({ name: 'web', policyOverride }),
        predict: other.planWorkload({ name: 'web', spec: privileged, policyOverride }),
        plan: other.createPlan({ changes: [scaleChange({ policyOverride })] }),
        dryRun: other.createPlan({
          changes: [scaleChange({ policyOverride })],
          validateOnly: true,
        }),
        execute: other.executePlan({ id: '0'.repeat(16), policyOverride }),
      };
      for (const [name, call] of Object.entries(calls)) {
        const { code, text } = await codeOf(call);
        expect([name, code]).toEqual([name, Code.PermissionDenied]);
        expect(text).toContain('may not override policies: only a user with the role admin in');
      }
    }
    expect(bed.events('ScaleWorkload').at(-1)?.audit).toMatchObject({
      ...{ result: 'permission_denied', overrideReason: REASON },
    });
    await admin.scaleWorkload({ name: 'web', replicas: 3, policyOverride });
  });
});

describe('plans and AUDIT policies', () => {
  const audit = { action: Action.AUDIT };
  it('lists violations as warnings that do not make the plan outdated', async () => {
    const spec = aPolicySpec({ type: Type.PRIVILEGED_MODE }, audit);
    await policies().createPolicy({ name: 'trial', spec });
    const { id, workloads } = await bed.client.createPlan({ changes: [scaleChange()] });
    expect(workloads[0]?.warningDetails).toMatchObject([
      {
        kind: WarningKind.POLICY_AUDIT,
        message: expect.stringMatching(/^AUDIT policy "trial", rule "rule": spec.security.priv/),
      },
    ]);
    const predicted = await bed.client.planWorkload({ name: 'web', spec: { image: 'other' } });
    expect(predicted.warnings).toHaveLength(1);
    expect((await bed.client.listPlans({})).plans[0]?.warnings).toBe(1);
    await policies().deletePolicy({ name: 'trial' });
    await bed.client.executePlan({ id });
    expect(bed.events('PolicyAudit')).toEqual([]);
  });

  it('names the change of the workload when the plan is outdated, not the warnings', async () => {
    const spec = aPolicySpec({ type: Type.PRIVILEGED_MODE }, audit);
    await policies().createPolicy({ name: 'trial', spec });
    const { id } = await bed.client.createPlan({ changes: [scaleChange()] });
    await policies().deletePolicy({ name: 'trial' });
    await bed.client.scaleWorkload({ name: 'web', replicas: 2 });
    await expect(bed.client.executePlan({ id })).rejects.toThrow('generation 2 was planned');
  });
});
