import { clone, create, type MessageInitShape } from '@bufbuild/protobuf';
import { durationFromMs, timestampFromMs } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError, type Client } from '@connectrpc/connect';
import {
  CertificateAuthorityRotation_Phase as RotationPhase,
  IdentityService,
  ReplicaStatus_Phase as Phase,
} from '@cloudless/api';
import {
  CertificateRecordSchema,
  NodeIdentityRecordSchema,
  NodeRecordSchema,
  VersionRecordSchema,
  type ReplicaRecordSchema,
} from '@cloudless/api/store';
import { silentLog } from '@cloudless/base';
import { toVersionKeyId } from '@cloudless/cluster-state';
import { ManualClock } from '@cloudless/base/testing';
import {
  PeerVerifier,
  createKeyAndCsr,
  decodeCertificates,
  type PeerIdentity,
} from '@cloudless/identity/x509';
import { ApiTestBed } from '../testing/api-test-bed.js';
import {
  TestIdentity,
  createCertificateClient,
  createTokenClient,
} from '../testing/test-identity.js';
import { NodeCertificateUseRecorder } from './node-certificate-use-recorder.js';
import { renewNodeIdentity } from './node-certificate.js';

let identity: TestIdentity;
let bed: ApiTestBed;
let node: Client<typeof IdentityService>;
let nodeSerial = '';

beforeAll(async () => {
  identity = await TestIdentity.create(new ManualClock().wallTime());
});
beforeEach(async () => {
  bed = await ApiTestBed.open({ identity });
  await identity.putAuthority(bed);
  const credential = await identity.putNode(bed, 'n1');
  nodeSerial = credential.serial;
  node = createCertificateClient(bed, IdentityService, 'n1', credential);
});
afterEach(() => bed.stop());

async function errorOf(call: Promise<unknown>): Promise<ConnectError> {
  return call.then(
    () => {
      throw new Error('the call succeeded');
    },
    (reason: unknown) => ConnectError.from(reason),
  );
}

function verify(pem: string): PeerIdentity {
  const { bundlePem } = identity.authority;
  return new PeerVerifier({ trustDomain: 'cloudless', bundlePem }).verify(
    decodeCertificates(pem, 'the chain'),
    bed.clock.wallTime(),
    { usage: 'client' },
  );
}

const recordOf = (nodeId: string) => bed.state.view().node(nodeId)?.value.identity;

/** A renewal of node n1 with a new key. */
async function aRenewal(fields: { nodeId?: string; instanceId?: string } = {}) {
  const { csr } = await createKeyAndCsr();
  const instanceId = 'instance-of-n1-0123456789';
  return { nodeId: 'n1', instanceId, csr, trustBundleGeneration: 1n, ...fields };
}

describe('RenewNodeCertificate', () => {
  it('issues a certificate, and keeps that of the call valid until the new one was used', async () => {
    const { certificateChain, trustBundle } = await node.renewNodeCertificate(await aRenewal());
    const { serial } = verify(certificateChain);
    expect(trustBundle?.generation).toBe(1n);
    expect(recordOf('n1')).toMatchObject({
      current: { serial, generation: 1 },
      previous: { serial: nodeSerial },
      trustBundleGeneration: 1n,
    });
  });

  it('makes the new certificate count for the connection of the call', async () => {
    await node.renewNodeCertificate(await aRenewal());
    await node.renewNodeCertificate(await aRenewal());
    // The second renewal came with the first one's certificate, so the oldest has ended.
    expect(recordOf('n1')?.previous?.serial).not.toBe(nodeSerial);
    await node.renewNodeCertificate(await aRenewal());
  });

  it('confirms the trust bundle of the agent, but none that does not exist yet', async () => {
    await node.renewNodeCertificate({ ...(await aRenewal()), trustBundleGeneration: 99n });
    expect(recordOf('n1')?.trustBundleGeneration).toBe(0n);
    await node.renewNodeCertificate(await aRenewal());
    expect(recordOf('n1')?.trustBundleGeneration).toBe(1n);
  });

  it('refuses another node, another machine and a broken request', async () => {
    await identity.putNode(bed, 'n2');
    const foreign = await errorOf(node.renewNodeCertificate(await aRenewal({ nodeId: 'n2' })));
    expect(foreign.code).toBe(Code.PermissionDenied);
    const instanceId = 'another-machine-0123456789';
    const machine = await errorOf(node.renewNodeCertificate(await aRenewal({ instanceId })));
    expect(machine.rawMessage).toBe(
      'node "n1" belongs to another machine; join this machine with a join token',
    );
    const empty = { ...(await aRenewal()), csr: new Uint8Array() };
    expect((await errorOf(node.renewNodeCertificate(empty))).message).toContain('csr: is required');
  });

  it.each([
    { name: 'renews an expired certificate within 30 days', days: 29, code: undefined },
    {
      name: 'refuses a certificate that expired more than 30 days ago',
      days: 31,
      code: Code.Unauthenticated,
    },
  ])('$name', async ({ days, code }) => {
    const issuedAtMs = new ManualClock().wallTime() - days * 24 * 3_600_000;
    const older = await TestIdentity.create(issuedAtMs);
    const late = await ApiTestBed.open({ identity: older });
    await older.putAuthority(late);
    const credential = await older.putNode(late, 'n1', 60_000);
    const client = createCertificateClient(late, IdentityService, 'n1', credential);
    const renewal = client.renewNodeCertificate(await aRenewal());
    if (code === undefined) await renewal;
    else expect((await errorOf(renewal)).code).toBe(code);
    await late.stop();
  });
});

describe('a state that was restored from an older backup', () => {
  /** Writes the record of n1 with another certificate, issued at this time. */
  async function putOlderRecord(issuedAtMs: number): Promise<void> {
    const stored = bed.state.view().node('n1');
    if (stored === undefined) throw new Error('no node');
    const record = clone(NodeRecordSchema, stored.value);
    record.identity = create(NodeIdentityRecordSchema, {
      current: {
        serial: 'older',
        issuedAt: timestampFromMs(issuedAtMs),
        notAfter: timestampFromMs(issuedAtMs + 1_000),
        generation: 1,
      },
    });
    await bed.state.commit(bed.state.transaction().put('node', 'n1', record));
  }

  it('lets a node with a certificate that is newer than the record renew', async () => {
    await putOlderRecord(bed.clock.wallTime() - 24 * 3_600_000);
    const { certificateChain } = await node.renewNodeCertificate(await aRenewal());
    expect(recordOf('n1')).toMatchObject({
      current: { serial: verify(certificateChain).serial },
      previous: { serial: nodeSerial },
    });
    bed.callers.at(-1)?.check();
  });

  it('refuses a certificate that was issued before the one in the record', async () => {
    await putOlderRecord(bed.clock.wallTime());
    expect((await errorOf(node.renewNodeCertificate(await aRenewal()))).rawMessage).toContain(
      'was revoked, or replaced by a newer one',
    );
  });
});

describe('renewNodeIdentity', () => {
  const cert = (serial: string) => create(CertificateRecordSchema, { serial });
  const before = (current: string, previous?: string) =>
    create(NodeIdentityRecordSchema, {
      current: cert(current),
      ...(previous === undefined ? {} : { previous: cert(previous) }),
    });

  it.each([
    { name: 'of a first renewal', have: before('a'), caller: 'a', expected: ['x', 'a'] },
    {
      name: 'of a retry after a lost reply',
      have: before('b', 'a'),
      caller: 'a',
      expected: ['x', 'a'],
    },
    { name: 'of the next renewal', have: before('b', 'a'), caller: 'b', expected: ['x', 'b'] },
    { name: 'of a retried join', have: before('a'), caller: undefined, expected: ['x', 'a'] },
  ])('keeps the certificate that the agent certainly has: $name', ({ have, caller, expected }) => {
    const renewal = { issued: cert('x'), callerSerial: caller, trustBundleGeneration: 0n };
    const { current, previous } = renewNodeIdentity(have, renewal);
    expect([current?.serial, previous?.serial]).toEqual(expected);
  });
});

describe('NodeCertificateUseRecorder', () => {
  it('ends the previous certificate once the current one was used, and only then', async () => {
    const { state, clock } = bed;
    const recorder = new NodeCertificateUseRecorder({ state, clock, log: silentLog });
    await node.renewNodeCertificate(await aRenewal());
    recorder.record('n1', nodeSerial);
    await bed.settle();
    expect(recordOf('n1')?.previous?.serial).toBe(nodeSerial);
    const before = state.view().revision;
    recorder.record('n1', recordOf('n1')?.current?.serial ?? '');
    recorder.record('n1', recordOf('n1')?.current?.serial ?? '');
    await recorder.close();
    await bed.settle();
    expect(recordOf('n1')?.previous).toBeUndefined();
    expect(state.view().revision).toBe(before + 1n);
  });
});

describe('IssueWorkloadCertificate', () => {
  type ReplicaFields = MessageInitShape<typeof ReplicaRecordSchema>;

  /** Stores replica w-0 of workload default/web-w; with `identity: {}` unless told otherwise. */
  async function putReplica(fields: ReplicaFields = {}, hasIdentity = true): Promise<void> {
    await bed.putReplica('w-0', { nodeId: 'n1', phase: Phase.RUNNING, ...fields });
    const template = hasIdentity ? { image: 'web', identity: {} } : { image: 'web' };
    const version = create(VersionRecordSchema, { version: 1, template });
    await bed.state.commit(bed.state.transaction().put('version', toVersionKeyId('w', 1), version));
  }
  const request = async () => {
    const { csr } = await createKeyAndCsr();
    return { nodeId: 'n1', replicaId: 'w-0', csr };
  };

  it('issues a certificate of the workload for a replica of the node', async () => {
    await putReplica();
    const { certificateChain } = await node.issueWorkloadCertificate(await request());
    expect(verify(certificateChain).id).toEqual({
      trustDomain: 'cloudless',
      kind: 'workload',
      id: 'default.web-w',
    });
  });

  it.each([
    { name: 'on another node', fields: { nodeId: 'n2' }, code: Code.NotFound },
    { name: 'on no node', fields: { nodeId: '' }, code: Code.NotFound },
    { name: 'that was replaced', fields: { lost: true }, code: Code.NotFound },
    { name: 'that stops', fields: { desiredRunning: false }, code: Code.FailedPrecondition },
    { name: 'that has ended', fields: { phase: Phase.FAILED }, code: Code.FailedPrecondition },
  ])('refuses a replica $name', async ({ fields, code }) => {
    await putReplica(fields);
    expect((await errorOf(node.issueWorkloadCertificate(await request()))).code).toBe(code);
  });

  it('refuses a workload without an identity', async () => {
    await putReplica({}, false);
    expect((await errorOf(node.issueWorkloadCertificate(await request()))).rawMessage).toBe(
      'the workload of replica "w-0" has no identity; add "identity: {}" to its spec',
    );
  });
});

describe('AuthorizeAgentCall', () => {
  beforeEach(() => bed.putReplica('w-0', { nodeId: 'n1', containerId: 'c0ffee' }));

  /** Asks about a call of user ada with the given roles. */
  async function ask(
    grants: Parameters<TestIdentity['putUser']>[2],
    { rpc = 'ExecCommand', target = 'c0ffee', nodeId = 'n1', running = false } = {},
  ) {
    await identity.putUser(bed, 'ada', grants);
    const { chainDer } = await identity.putUserCertificate(bed, 'ada');
    const certificateChain = [...chainDer];
    return node.authorizeAgentCall({ nodeId, rpc, target, running, certificateChain });
  }

  it('allows a call that the roles of the user allow, and records it under their name', async () => {
    expect(await ask([{ role: 'operator', namespace: 'default' }])).toMatchObject({
      allowed: true,
      principal: 'user/ada',
      reason: '',
    });
    expect(bed.events('ExecCommand').at(-1)).toMatchObject({
      nodeId: 'n1',
      replicaId: 'w-0',
      audit: { principal: 'user/ada', result: 'started' },
    });
  });

  it('decides again about a running call, without another audit record', async () => {
    const grants = [{ role: 'operator', namespace: 'default' }] as const;
    expect((await ask(grants, { running: true })).allowed).toBe(true);
    expect((await ask([], { running: true })).allowed).toBe(false);
    expect(bed.events('ExecCommand')).toEqual([]);
  });

  it.each([
    {
      name: 'a user with a lower role',
      grants: [{ role: 'viewer', namespace: 'default' }] as const,
      reason: 'operator',
    },
    {
      name: 'a user of another namespace',
      grants: [{ role: 'operator', namespace: 'bank' }] as const,
      reason: 'no container or replica "c0ffee" is assigned to node "n1"',
    },
  ])('refuses $name', async ({ grants, reason }) => {
    const response = await ask(grants);
    expect(response).toMatchObject({ allowed: false, reason: expect.stringContaining(reason) });
    expect(bed.events('ExecCommand')).toEqual([]);
  });

  it('refuses a target that is not on the node, and a call about the whole node by a namespace user', async () => {
    const grants = [{ role: 'operator', namespace: 'default' }] as const;
    expect((await ask(grants, { target: 'unknown' })).reason).toBe(
      'no container or replica "unknown" is assigned to node "n1"',
    );
    expect((await ask(grants, { rpc: 'ListContainers', target: '' })).reason).toContain(
      'in the whole cluster',
    );
  });

  it('refuses the certificate of a node, and one that is no certificate, without failing', async () => {
    const { chainDer } = await identity.putNode(bed, 'n3');
    const call = { nodeId: 'n1', rpc: 'ExecCommand', target: 'c0ffee' };
    const ofNode = await node.authorizeAgentCall({ ...call, certificateChain: [...chainDer] });
    expect(ofNode.allowed).toBe(false);
    const junk = await node.authorizeAgentCall({
      ...call,
      certificateChain: [new Uint8Array([1, 2, 3])],
    });
    expect([junk.allowed, junk.reason]).toEqual([false, expect.stringContaining('DER')]);
  });

  it('refuses questions about another node, and unknown RPCs', async () => {
    const { chainDer } = await identity.putUserCertificate(bed, 'ada');
    const certificateChain = [...chainDer];
    const call = { rpc: 'ExecCommand', target: '', certificateChain };
    const other = await errorOf(node.authorizeAgentCall({ ...call, nodeId: 'n2' }));
    expect(other.code).toBe(Code.PermissionDenied);
    const unknown = await errorOf(
      node.authorizeAgentCall({ ...call, nodeId: 'n1', rpc: 'MakeCoffee' }),
    );
    expect(unknown.message).toContain('rpc: "MakeCoffee" is not an RPC of AgentService');
  });
});

describe('rotation of the certificate authority', () => {
  it('cannot be skipped while none runs, and is shown with its progress', async () => {
    const token = await identity.putUser(bed, 'ada', [{ role: 'admin', namespace: '' }]);
    const admin = createTokenClient(bed, IdentityService, token);
    expect((await errorOf(admin.skipCertificateAuthorityWait({}))).rawMessage).toBe(
      'no rotation of the certificate authority runs; begin one with "cloudlessctl admin rotate-ca"',
    );
    identity.createGeneration = () =>
      Promise.resolve({ rootPem: identity.authority.authority.rootPem });
    const started = await admin.rotateCertificateAuthority({});
    expect(started.rotation).toMatchObject({
      phase: RotationPhase.DISTRIBUTING,
      waitingNodes: ['n1'],
      waitingNodeCount: 1,
    });
    expect(await admin.rotateCertificateAuthority({})).toEqual(started);
    const skipped = await admin.skipCertificateAuthorityWait({});
    expect(skipped.rotation?.phase).toBe(RotationPhase.REISSUING);
    const ended = await admin.skipCertificateAuthorityWait({});
    expect(ended.rotation).toMatchObject({ phase: RotationPhase.COMPLETED, waitingNodes: [] });
    expect(ended.roots).toMatchObject([{ generation: 2, issues: true }]);
    expect(bed.events().map(({ reason }) => reason)).toEqual(
      expect.arrayContaining([
        'CertificateAuthorityRotationStarted',
        'CertificateAuthorityReissuing',
        'CertificateAuthorityRotated',
      ]),
    );
  });

  it('does not begin again when a call is repeated soon after the end', async () => {
    const token = await identity.putUser(bed, 'ada', [{ role: 'admin', namespace: '' }]);
    const admin = createTokenClient(bed, IdentityService, token);
    identity.createGeneration = () =>
      Promise.resolve({ rootPem: identity.authority.authority.rootPem });
    const request = { unlessCompletedWithin: durationFromMs(60_000) };
    await admin.rotateCertificateAuthority(request);
    await admin.skipCertificateAuthorityWait({});
    const ended = await admin.skipCertificateAuthorityWait({});
    await bed.clock.advance(59_999);
    expect(await admin.rotateCertificateAuthority(request)).toEqual(ended);
    await bed.clock.advance(1);
    const { rotation } = await admin.rotateCertificateAuthority(request);
    expect(rotation?.phase).toBe(RotationPhase.DISTRIBUTING);
  });
});
