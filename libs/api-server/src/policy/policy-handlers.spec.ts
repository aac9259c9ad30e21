import {
  PolicyCondition_Operator as Operator,
  PolicyRule_Type as Type,
  WatchPoliciesResponse_Kind as WatchKind,
  createPolicyClient,
  type PolicyClient,
} from '@cloudless/api';
import { ManualClock } from '@cloudless/base/testing';
import { PolicyService } from '@cloudless/api';
import type { Grant } from '@cloudless/identity';
import { ApiTestBed } from '../testing/api-test-bed.js';
import { aPolicySpec } from '../testing/policies.js';
import { TestIdentity, createTokenClient } from '../testing/test-identity.js';

const privileged = aPolicySpec({ type: Type.PRIVILEGED_MODE });
const expressions = (count: number) => ({
  namespace: '*',
  rules: Array.from({ length: count }, (_, index) => ({
    name: `rule-${index}`,
    type: Type.EXPRESSION,
    config: { case: 'expression' as const, value: { expression: 'spec.replicas <= 2' } },
  })),
});

describe('policies', () => {
  let bed: ApiTestBed;
  let client: PolicyClient;
  beforeEach(async () => {
    bed = await ApiTestBed.open();
    client = createPolicyClient(bed.transport);
  });
  afterEach(() => bed.stop());

  it('are created with defaults, one audit record and one event, and read again', async () => {
    const policy = await client.createPolicy({ name: 'privileged', spec: privileged });
    expect(policy).toMatchObject({
      ...{ name: 'privileged', generation: 1n },
      spec: { namespace: '*', enabled: true, priority: 0 },
    });
    expect(await client.getPolicy({ name: 'privileged' })).toEqual(policy);
    expect((await client.listPolicies({})).policies).toEqual([policy]);
    expect(bed.auditRecords).toEqual(['CreatePolicy ok']);
    expect(bed.events('PolicyCreated')[0]?.message).toBe('policy privileged was created');
  });

  it('are created once for a request id, and once for a name', async () => {
    const request = { name: 'a', spec: privileged, requestId: 'r1' };
    const first = await client.createPolicy(request);
    expect(await client.createPolicy(request)).toEqual(first);
    await expect(client.createPolicy({ name: 'a', spec: privileged })).rejects.toThrow(
      '[already_exists] policy "a" already exists; update it, or choose another name',
    );
  });

  it('change by the fields that are present, and not at another generation', async () => {
    await client.createPolicy({ name: 'a', spec: privileged });
    const spec = { enabled: false };
    const changed = await client.updatePolicy({ name: 'a', spec, expectedGeneration: 1n });
    expect(changed).toMatchObject({ generation: 2n, spec: { namespace: '*', enabled: false } });
    await expect(client.updatePolicy({ name: 'a', spec, expectedGeneration: 1n })).rejects.toThrow(
      '[aborted] policy "a" is at generation 2, not 1; read the policy again',
    );
    expect((await client.updatePolicy({ name: 'a', spec })).generation).toBe(2n);
  });

  it('are gone once deleted', async () => {
    await client.createPolicy({ name: 'a', spec: privileged });
    await client.deletePolicy({ name: 'a' });
    await expect(client.getPolicy({ name: 'a' })).rejects.toThrow('[not_found] policy "a"');
    await expect(client.deletePolicy({ name: 'a' })).rejects.toThrow('[not_found] policy "a"');
  });

  it.each([
    {
      name: 'a destination that is no network',
      spec: aPolicySpec({
        type: Type.EGRESS_DESTINATION,
        config: {
          case: 'egressDestination',
          value: { allowed: [{ destination: { case: 'cidr', value: '10.0.0.1/8' } }] },
        },
      }),
      error:
        '[invalid_argument] spec.rules[0].egress_destination.allowed[0].cidr: 10.0.0.1/8 has host bits: use 10.0.0.0/8',
    },
    {
      name: 'destinations that are not configured',
      spec: aPolicySpec({ type: Type.EGRESS_DESTINATION }),
      error: '[invalid_argument] spec.rules[0].egress_destination.allowed: is required',
    },
    {
      name: 'no type',
      spec: aPolicySpec({}),
      error: '[invalid_argument] spec.rules[0].type: is required; use IMAGE_REGISTRY',
    },
    {
      name: 'an unknown type',
      spec: aPolicySpec({ type: 99 as Type }),
      error: '[invalid_argument] spec.rules[0].type',
    },
    {
      name: 'an unknown operator',
      spec: aPolicySpec({
        type: Type.PRIVILEGED_MODE,
        conditions: [{ field: 'namespace', operator: 99 as Operator }],
      }),
      error: '[invalid_argument] spec.rules[0].conditions[0].operator',
    },
    {
      name: 'the configuration of another type',
      spec: aPolicySpec({
        type: Type.PRIVILEGED_MODE,
        config: { case: 'expression', value: { expression: 'true' } },
      }),
      error:
        '[invalid_argument] spec.rules[0].expression: is the configuration of another type of rule; the type is PRIVILEGED_MODE',
    },
    {
      name: 'a configuration that says nothing',
      spec: aPolicySpec({ type: Type.IMAGE_REGISTRY }),
      error: '[invalid_argument] spec.rules[0].image_registry: needs at least one of allowed',
    },
    {
      name: 'an unknown field of a workload',
      spec: aPolicySpec({
        type: Type.PRIVILEGED_MODE,
        conditions: [{ field: 'spec.nothing', operator: Operator.EXISTS }],
      }),
      error: '[invalid_argument] spec.rules[0].conditions[0].field',
    },
    {
      name: 'an expression that cannot be used',
      spec: aPolicySpec({
        type: Type.EXPRESSION,
        config: { case: 'expression', value: { expression: 'spec.nothing' } },
      }),
      error: '[invalid_argument] spec.rules[0].expression.expression',
    },
    {
      name: 'two settings of which one would be ignored',
      spec: aPolicySpec({
        type: Type.CAPABILITIES,
        config: { case: 'capabilities', value: { forbidAdd: true, allowedAdd: ['KILL'] } },
      }),
      error: '[invalid_argument] spec.rules[0].capabilities.forbid_add: excludes allowed_add',
    },
    {
      name: 'no namespace',
      spec: aPolicySpec({ type: Type.PRIVILEGED_MODE }, { namespace: '' }),
      error: '[invalid_argument] spec.namespace: "" is not a name',
    },
  ])('are refused with $name', async ({ spec, error }) => {
    await expect(client.createPolicy({ name: 'a', spec })).rejects.toThrow(error);
    expect((await client.listPolicies({})).policies).toEqual([]);
  });

  it('have at most 64 expressions together', async () => {
    await client.createPolicy({ name: 'a', spec: expressions(40) });
    await expect(client.createPolicy({ name: 'b', spec: expressions(25) })).rejects.toThrow(
      '[resource_exhausted] with policy "b" there would be 65 rules of type EXPRESSION; all policies together may have at most 64',
    );
    await client.createPolicy({ name: 'b', spec: expressions(24) });
    await client.createPolicy({ name: 'c', spec: privileged });
    await client.updatePolicy({ name: 'a', spec: { enabled: false } });
  });

  it('are watched', async () => {
    await client.createPolicy({ name: 'a', spec: privileged });
    const stop = new AbortController();
    const seen: string[] = [];
    const watched = (async () => {
      for await (const { kind, policy } of client.watchPolicies({}, { signal: stop.signal })) {
        seen.push(`${WatchKind[kind]} ${policy?.name ?? ''}`);
        if (kind === WatchKind.DELETED) return;
      }
    })();
    await bed.settle();
    await client.deletePolicy({ name: 'a' });
    await watched;
    stop.abort();
    expect(seen).toEqual(['PUT a', 'SYNCED ', 'DELETED a']);
  });
});

describe('the roles for policies', () => {
  let bed: ApiTestBed;
  let identity: TestIdentity;
  beforeAll(async () => {
    identity = await TestIdentity.create(new ManualClock().wallTime());
  });
  beforeEach(async () => {
    bed = await ApiTestBed.open({ identity });
    await identity.putAuthority(bed);
  });
  afterEach(() => bed.stop());
  const as = async (name: string, grant: Grant) =>
    createTokenClient(bed, PolicyService, await identity.putUser(bed, name, [grant]));

  it('let an admin of the cluster write, and show a tenant what judges its namespace', async () => {
    const admin = await as('ann', { role: 'admin', namespace: '' });
    const tenant = await as('bob', { role: 'admin', namespace: 'shop' });
    await admin.createPolicy({ name: 'every', spec: privileged });
    await admin.createPolicy({ name: 'own', spec: { ...privileged, namespace: 'shop' } });
    await admin.createPolicy({ name: 'foreign', spec: { ...privileged, namespace: 'blog' } });
    const { policies } = await tenant.listPolicies({});
    expect(policies.map(({ name }) => name)).toEqual(['every', 'own']);
    await expect(tenant.getPolicy({ name: 'foreign' })).rejects.toThrow('[not_found]');
    await expect(
      tenant.createPolicy({ name: 'b', spec: { ...privileged, namespace: 'shop' } }),
    ).rejects.toThrow('[permission_denied]');
    const spec = { image: 'nginx' };
    expect((await tenant.testPolicy({ namespace: 'shop', spec })).verdicts).toHaveLength(1);
    await expect(tenant.testPolicy({ namespace: 'blog', spec })).rejects.toThrow(
      '[permission_denied]',
    );
    const candidates = [{ name: 'new', spec: privileged }];
    await expect(tenant.testPolicy({ namespace: 'shop', spec, candidates })).rejects.toThrow(
      '[permission_denied]',
    );
  });
});
