import { clone } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { Code, ConnectError, type Client } from '@connectrpc/connect';
import { IdentityService, NodeStatus_Phase as Phase, createIdentityClient } from '@cloudless/api';
import { NodeRecordSchema } from '@cloudless/api/store';
import { ManualClock } from '@cloudless/base/testing';
import { PeerVerifier, createKeyAndCsr, decodeCertificates } from '@cloudless/identity/x509';
import { ApiTestBed } from '../testing/api-test-bed.js';
import {
  TestIdentity,
  createCertificateClient,
  createTokenClient,
} from '../testing/test-identity.js';
import { CONNECTION_HEADER } from '../testing/scripted-agent.js';
import { INVALID_JOIN_TOKEN } from './join-token.js';

let identity: TestIdentity;
let bed: ApiTestBed;
let admin: Client<typeof IdentityService>;

beforeAll(async () => {
  identity = await TestIdentity.create(new ManualClock().wallTime());
});
beforeEach(async () => {
  bed = await ApiTestBed.open({ identity });
  await identity.putAuthority(bed);
  const token = await identity.putUser(bed, 'ada', [{ role: 'admin', namespace: '' }]);
  admin = createTokenClient(bed, IdentityService, token);
});
afterEach(() => bed.stop());

/** A machine with a key, which joins under a node id. */
async function aMachine(nodeId: string, instanceId = `instance-of-${nodeId}-0123456789`) {
  const { csr, publicKeySha256 } = await createKeyAndCsr();
  const join = (token: string, from = '10.0.0.7') =>
    bed.client.enrollNode(
      { nodeId, instanceId, csr, token },
      { headers: { [CONNECTION_HEADER]: from } },
    );
  return { join, publicKeySha256 };
}

/** Returns the error of a call. */
async function errorOf(call: Promise<unknown>): Promise<ConnectError> {
  return call.then(
    () => {
      throw new Error('the call succeeded');
    },
    (reason: unknown) => ConnectError.from(reason),
  );
}

const lastAudit = () => bed.events('EnrollNode').at(-1);

describe('EnrollNode', () => {
  it('issues a certificate of the node that the trust bundle verifies', async () => {
    const { text } = await admin.createJoinToken({});
    const { certificate, clusterId } = await (await aMachine('n1')).join(text);
    expect(clusterId).toBe(bed.state.clusterId);
    const verifier = new PeerVerifier({
      trustDomain: certificate?.trustDomain ?? '',
      bundlePem: certificate?.trustBundle?.pem ?? '',
    });
    const chain = decodeCertificates(certificate?.certificateChain ?? '', 'the chain');
    expect(verifier.verify(chain, bed.clock.wallTime(), { usage: 'client' })).toMatchObject({
      id: { kind: 'node', id: 'n1' },
    });
    expect(certificate?.coordinatorIds).toEqual(identity.coordinatorIds);
    expect(lastAudit()?.audit).toMatchObject({ principal: 'unauthenticated', result: 'ok' });
  });

  it('names the join token in the audit records of its creation and its use', async () => {
    const { text, token } = await admin.createJoinToken({});
    await (await aMachine('n1')).join(text);
    const { id = '' } = token ?? {};
    expect(bed.events('CreateJoinToken').at(-1)?.message).toMatch(
      new RegExp(`^user/ada( from \\S+)? called CreateJoinToken on join token ${id}: ok$`),
    );
    expect(lastAudit()).toMatchObject({ nodeId: 'n1' });
    expect(lastAudit()?.message).toMatch(
      new RegExp(`called EnrollNode on node n1 with join token ${id}: ok$`),
    );
  });

  it('lets exactly 10 of 100 machines join that use a token of 10 uses at once', async () => {
    const { text, token } = await admin.createJoinToken({ maxUses: 10 });
    const machines = await Promise.all(
      Array.from({ length: 100 }, (_, index) => aMachine(`n${index}`)),
    );
    const results = await Promise.allSettled(machines.map(({ join }) => join(text)));
    const failures = results.flatMap((result) =>
      result.status === 'rejected' ? [ConnectError.from(result.reason)] : [],
    );
    expect(results.length - failures.length).toBe(10);
    expect(new Set(failures.map(({ code, rawMessage }) => `${Code[code]}: ${rawMessage}`))).toEqual(
      new Set([`Unauthenticated: ${INVALID_JOIN_TOKEN}`]),
    );
    expect([...bed.state.view().nodes()]).toHaveLength(10);
    expect(bed.state.view().joinToken(token?.id ?? '')?.value.token).toMatchObject({
      useCount: 10,
      uses: { length: 10 },
    });
  });

  it('answers the retry of a machine without another use of the token', async () => {
    const { text, token } = await admin.createJoinToken({});
    const { join, publicKeySha256 } = await aMachine('n1');
    const [first, second] = [await join(text), await join(text)];
    expect(second.certificate?.certificateChain).not.toBe(first.certificate?.certificateChain);
    expect(bed.state.view().joinToken(token?.id ?? '')?.value.token?.useCount).toBe(1);
    // Both replies may be the one that arrives.
    expect(bed.state.view().node('n1')?.value.identity).toMatchObject({
      current: { publicKeySha256 },
      previous: { publicKeySha256 },
    });
    expect(bed.events('NodeEnrolled')).toHaveLength(1);
  });

  it('does not take the retry of a node that was removed for a retry', async () => {
    const { text } = await admin.createJoinToken({});
    const machine = await aMachine('n1');
    await machine.join(text);
    await bed.state.commit(bed.state.transaction().delete('node', 'n1'));
    expect((await errorOf(machine.join(text))).rawMessage).toBe(INVALID_JOIN_TOKEN);
    expect(lastAudit()?.audit?.cause).toBe('used up token');
  });

  it('gives one message to the caller and the cause to the audit record for every bad token', async () => {
    const created = (fields: Parameters<typeof admin.createJoinToken>[0] = {}) =>
      admin.createJoinToken(fields);
    const valid = await created({});
    const revoked = await created({});
    await admin.revokeJoinToken({ id: revoked.token?.id ?? '' });
    const expired = await created({ lifetime: { seconds: 1n } });
    const usedUp = await created({});
    await (await aMachine('other')).join(usedUp.text);
    await bed.clock.advance(1_000);
    const [, id = '', secret = '', root = ''] = valid.text.split('.');
    const tampered = `cl1.${id}.${secret.startsWith('A') ? 'B' : 'A'}${secret.slice(1)}.${root}`;
    const cases = [
      ['', 'empty token'],
      ['cl1.nonsense', 'malformed token'],
      [`cl1.aaaaaaaaaaaa.${secret}.${root}`, 'unknown token'],
      [tampered, 'tampered token'],
      [`cl1.${id}.${secret}.${'0'.repeat(64)}`, 'token of another authority'],
      [revoked.text, 'revoked token'],
      [expired.text, 'expired token'],
      [usedUp.text, 'used up token'],
      [(await created({ nodeIdPattern: 'edge-*' })).text, 'token for other node ids'],
      [(await created({ cidrs: ['192.168.0.0/16'] })).text, 'token for other networks'],
    ] as const;
    const machine = await aMachine('n1');
    for (const [text, cause] of cases) {
      const error = await errorOf(machine.join(text));
      expect([error.code, error.rawMessage]).toEqual([Code.Unauthenticated, INVALID_JOIN_TOKEN]);
      expect(lastAudit()).toMatchObject({
        nodeId: 'n1',
        audit: { principal: 'unauthenticated', result: 'unauthenticated', cause },
      });
      if (text !== '') expect(JSON.stringify(lastAudit()?.message)).not.toContain(text);
    }
    await machine.join(valid.text);
  });

  it('gives the labels of the token to the node', async () => {
    const { text } = await admin.createJoinToken({ labels: { site: 'berlin' } });
    await (await aMachine('n1')).join(text);
    expect(bed.state.view().node('n1')?.value.labels).toEqual({ site: 'berlin' });
  });

  it('ends the older certificates of a machine that joins again with a new key', async () => {
    const { text } = await admin.createJoinToken({ maxUses: 2 });
    await (await aMachine('n1')).join(text);
    const again = await aMachine('n1');
    bed.nodes.setPhase('n1', Phase.LOST);
    await again.join(text);
    const { current, previous } = bed.state.view().node('n1')?.value.identity ?? {};
    expect([current?.publicKeySha256, previous]).toEqual([again.publicKeySha256, undefined]);
  });

  it('ends the older certificates also when the clock was set back since they were issued', async () => {
    const { text } = await admin.createJoinToken({ maxUses: 2 });
    await (await aMachine('n1')).join(text);
    const record = clone(NodeRecordSchema, bed.state.view().node('n1')!.value);
    const issuedAt = timestampFromMs(bed.clock.wallTime() + 7_200_000);
    record.identity!.current!.issuedAt = issuedAt;
    await bed.state.commit(bed.state.transaction().put('node', 'n1', record));
    bed.nodes.setPhase('n1', Phase.LOST);
    const again = await aMachine('n1');
    for (const attempt of ['new key', 'retry']) {
      await again.join(text);
      const { current } = bed.state.view().node('n1')?.value.identity ?? {};
      expect([attempt, current?.publicKeySha256]).toEqual([attempt, again.publicKeySha256]);
      // A certificate counts as newer than the record when it is valid only from later on.
      expect(current?.issuedAt).toEqual(issuedAt);
    }
  });

  it('refuses guesses of one address after ten of them', async () => {
    const machine = await aMachine('n1');
    const codes: string[] = [];
    for (let attempt = 0; attempt < 13; attempt += 1)
      codes.push(Code[(await errorOf(machine.join('cl1.guess', 'attacker'))).code] ?? '');
    expect(codes.slice(0, 10)).toEqual(Array.from({ length: 10 }, () => 'Unauthenticated'));
    expect(codes.slice(-2)).toEqual(['ResourceExhausted', 'ResourceExhausted']);
    expect((await errorOf(machine.join('cl1.guess', 'attacker'))).rawMessage).toContain(
      'too many invalid join tokens; try again in',
    );
  });

  it('lets machines with a valid token join from behind the address of a stranger who guesses', async () => {
    const machine = await aMachine('n1');
    const { text } = await admin.createJoinToken({});
    for (let attempt = 0; attempt < 13; attempt += 1)
      await errorOf(machine.join('cl1.guess', 'nat'));
    await machine.join(text, 'nat');
    expect(bed.state.view().node('n1')).toBeDefined();
  });

  it('records few of the attempts of a stranger with many addresses', async () => {
    const { join } = await aMachine('n1');
    for (let index = 0; index < 300; index += 1)
      await errorOf(join('cl1.guess', `address ${index}`));
    expect(bed.events('EnrollNode').length).toBeLessThanOrEqual(20);
  });

  it('refuses a request without a CSR and one with a broken CSR', async () => {
    const { text } = await admin.createJoinToken({});
    const request = { nodeId: 'n1', instanceId: 'instance-of-n1-0123456789', token: text };
    const missing = await errorOf(bed.client.enrollNode(request));
    expect(missing.message).toContain('csr: is required together with a token');
    const broken = await errorOf(
      bed.client.enrollNode({ ...request, csr: new Uint8Array([0x30, 1, 2]) }),
    );
    expect(broken.code).toBe(Code.InvalidArgument);
    expect([...bed.state.view().nodes()]).toEqual([]);
  });
});

describe('join tokens', () => {
  it('are created with the defaults, and stored without their text', async () => {
    const { text, token } = await admin.createJoinToken({ description: 'rack 7' });
    expect(text).toMatch(/^cl1\.[a-z0-9]{12}\.[\w-]{43}\.[0-9a-f]{64}$/);
    expect(token).toMatchObject({ maxUses: 1, createdBy: 'user/ada', description: 'rack 7' });
    const lifetimeS = Number(token?.expiresAt?.seconds) - Number(token?.createdAt?.seconds);
    expect(lifetimeS).toBe(24 * 3_600);
    const [, , secret = ''] = text.split('.');
    const stored = bed.state.view().joinToken(token?.id ?? '')?.value;
    expect(
      JSON.stringify(stored, (_, value: unknown) =>
        typeof value === 'bigint' ? String(value) : value,
      ),
    ).not.toContain(secret);
  });

  it('are listed newest first, one page after the other', async () => {
    const ids: string[] = [];
    for (let index = 0; index < 3; index += 1) {
      await bed.clock.advance(1);
      ids.unshift((await admin.createJoinToken({})).token?.id ?? '');
    }
    const first = await admin.listJoinTokens({ pageSize: 2 });
    const second = await admin.listJoinTokens({ pageSize: 2, pageToken: first.nextPageToken });
    expect([...first.tokens, ...second.tokens].map(({ id }) => id)).toEqual(ids);
    expect(second.nextPageToken).toBe('');
  });

  it('are refused with an impossible lifetime or network', async () => {
    const error = await errorOf(
      admin.createJoinToken({ lifetime: { nanos: 1 }, cidrs: ['10.0.0.0/8', '10.0.0.0/40'] }),
    );
    expect(error.message).toContain('lifetime: must be from 1 s to 365 days');
    expect(error.message).toContain('cidrs[1]: "10.0.0.0/40" is not a network');
  });

  it('that are unknown cannot be revoked', async () => {
    expect((await errorOf(admin.revokeJoinToken({ id: 'nobody' }))).rawMessage).toBe(
      'join token "nobody" not found',
    );
  });
});

describe('bans', () => {
  it('end the certificates of a node at once, and keep its machine out until an unban', async () => {
    const node = await identity.putNode(bed, 'n1');
    const client = createCertificateClient(bed, IdentityService, 'n1', node);
    const { csr } = await createKeyAndCsr();
    const renewal = {
      nodeId: 'n1',
      instanceId: 'instance-of-n1-0123456789',
      csr,
      trustBundleGeneration: 1n,
    };
    await client.renewNodeCertificate(renewal);
    await admin.banNode({ nodeId: 'n1', reason: 'stolen' });
    expect((await errorOf(client.renewNodeCertificate(renewal))).rawMessage).toBe(
      'node "n1" is banned from this cluster',
    );
    const { text } = await admin.createJoinToken({});
    const machine = await aMachine('n1');
    expect((await errorOf(machine.join(text))).code).toBe(Code.PermissionDenied);
    expect((await admin.listNodeBans({})).bans).toMatchObject([
      { nodeId: 'n1', bannedBy: 'user/ada', reason: 'stolen' },
    ]);
    expect(await admin.unbanNode({ nodeId: 'n1' })).toMatchObject({ removed: true });
    expect((await errorOf(client.renewNodeCertificate(renewal))).code).toBe(Code.Unauthenticated);
    await machine.join(text);
    expect(await admin.unbanNode({ nodeId: 'n1' })).toMatchObject({ removed: false });
  });
});

describe('a cluster without identities', () => {
  it('answers every call of IdentityService with what to do', async () => {
    const plain = await ApiTestBed.open();
    const client = createIdentityClient(plain.transport);
    const error = await errorOf(client.createJoinToken({}));
    expect([error.code, error.rawMessage]).toEqual([
      Code.FailedPrecondition,
      'this cluster has no identities; start the coordinator with --tls on',
    ]);
    await plain.stop();
  });
});
