import type { DescService } from '@bufbuild/protobuf';
import { Code, ConnectError, createClient } from '@connectrpc/connect';
import { CoordinatorService, IdentityService, UserService, fromConnectError } from '@cloudless/api';
import { ManualClock } from '@cloudless/base/testing';
import { createKeyAndCsr } from '@cloudless/identity/x509';
import { ApiTestBed } from '../testing/api-test-bed.js';
import { CONNECTION_HEADER } from '../testing/scripted-agent.js';
import { FollowerBed, createFakeLeader } from '../testing/follower-bed.js';
import {
  TestIdentity,
  createCertificateClient,
  createTokenClient,
} from '../testing/test-identity.js';

const HOUR_MS = 60 * 60 * 1_000;

let identity: TestIdentity;
let bed: ApiTestBed;
let follower: FollowerBed;

beforeAll(async () => {
  identity = await TestIdentity.create(new ManualClock().wallTime());
});
beforeEach(async () => {
  bed = await ApiTestBed.open({ identity });
  await identity.putAuthority(bed);
  const { chainDer } = await identity.authority.issue('controller', 'c2', 24 * HOUR_MS);
  bed.connection('c2').peer = { chainDer };
  follower = await FollowerBed.open(bed);
  follower.setLeader(createFakeLeader(bed));
});
afterEach(async () => {
  await follower.close();
  await bed.stop();
});

const web = { name: 'web', namespace: 'shop', spec: { command: ['serve'], replicas: 1 } };
const auditOf = (method: string) =>
  bed.events(method).map(({ audit }) => [audit?.principal, audit?.address, audit?.result]);
const codeOf = (call: Promise<unknown>): Promise<Code | undefined> =>
  call.then(
    () => undefined,
    (reason: unknown) => ConnectError.from(reason).code,
  );
type Served = Parameters<typeof createTokenClient>[0];
const operator = [{ role: 'operator', namespace: 'shop' }] as const;
/** Headers by which a client pretends to be a coordinator that forwards a call of `client`. */
const forge = (chainDer: readonly Uint8Array[]): Record<string, string> => ({
  'cloudless-forwarded-by': 'c2',
  'cloudless-forwarded-for': '10.9.9.9',
  'cloudless-forwarded-certificates': chainDer
    .map((der) => Buffer.from(der).toString('base64'))
    .join(','),
});

describe('a forwarded call', () => {
  it.each(['token', 'certificate'])(
    'has the principal and the address of the client with a %s in the audit record',
    async (kind) => {
      const token = await identity.putUser(bed, 'ada', operator);
      const client =
        kind === 'token'
          ? createTokenClient(follower, CoordinatorService, token)
          : createCertificateClient(
              bed,
              CoordinatorService,
              'laptop-of-ada',
              await identity.putUserCertificate(bed, 'ada'),
              follower,
            );
      await client.createWorkload(web);
      const address = kind === 'token' ? '' : bed.connection('laptop-of-ada').remoteAddress;
      expect(auditOf('CreateWorkload')).toEqual([['user/ada', address, 'ok']]);
    },
  );

  it('is refused by the leader when the coordinator has not seen a revocation yet', async () => {
    const token = await identity.putUser(bed, 'ada', operator);
    await bed.state.commit(bed.state.transaction().delete('user', 'ada'));
    const { chainDer } = await identity.authority.issue('controller', 'c3');
    const client = createCertificateClient(bed, CoordinatorService, 'c3', { chainDer });
    const headers = {
      authorization: `Bearer ${token}`,
      'cloudless-forwarded-by': 'c3',
      'cloudless-forwarded-for': '10.9.9.9',
    };
    expect(await codeOf(client.createWorkload(web, { headers }))).toBe(Code.Unauthenticated);
    // Its connection carries the calls of other clients too.
    expect(bed.connection('c3').isDrained).toBe(false);
  });

  it('without a client is a call of the coordinator, which may change nothing', async () => {
    const { chainDer } = await identity.authority.issue('controller', 'c3');
    const client = createCertificateClient(bed, CoordinatorService, 'c3', { chainDer });
    const headers = { 'cloudless-forwarded-by': 'c3' };
    const error = fromConnectError(
      await client.createWorkload(web, { headers }).catch((reason: unknown) => reason),
    );
    expect(error).toMatchObject({ kind: 'denied' });
  });

  it('counts attempts to guess join tokens for the address of the client', async () => {
    const guess = (from: string) =>
      codeOf(
        createClient(CoordinatorService, follower.transport).enrollNode(
          { nodeId: 'n1', instanceId: 'instance-of-n1-0123456789', token: 'cl1.guess' },
          { headers: { [CONNECTION_HEADER]: from } },
        ),
      );
    let last: Code | undefined;
    for (let attempt = 0; attempt < 12; attempt += 1) last = await guess('attacker');
    expect(last).toBe(Code.ResourceExhausted);
    expect(await guess('neighbour')).toBe(Code.Unauthenticated);
  });

  it('is refused when its headers are incomplete', async () => {
    const { chainDer } = await identity.authority.issue('controller', 'c3');
    const client = createCertificateClient(bed, CoordinatorService, 'c3', { chainDer });
    const headers = { 'cloudless-forwarded-for': '10.9.9.9' };
    expect(await codeOf(client.createWorkload(web, { headers }))).toBe(Code.InvalidArgument);
  });
});

describe('a certificate that its client has renewed over an open connection', () => {
  it.each(['leader', 'follower'] as const)(
    'counts for the calls of this connection through a follower after a renewal at a %s',
    async (place) => {
      await identity.putUser(bed, 'ada', operator);
      // Valid for one hour.
      const presented = await identity.putUserCertificate(bed, 'ada');
      const connect = <Service extends DescService>(service: Service, server: Served) =>
        createCertificateClient(bed, service, 'laptop-of-ada', presented, server);
      const { csr } = await createKeyAndCsr();
      await connect(UserService, place === 'leader' ? bed : follower).issueUserCertificate({ csr });
      expect((await connect(UserService, follower).whoAmI({})).principal).toBe('user/ada');
      await bed.clock.advance(2 * HOUR_MS);
      const client = connect(CoordinatorService, follower);
      expect(await client.createWorkload(web)).toMatchObject({ name: 'web' });
      expect(await client.listWorkloads({ namespace: 'shop' })).toMatchObject({
        workloads: [{ name: 'web' }],
      });
    },
  );

  it('is not shown to the leader for a node, as only a handshake proves that a node has it', async () => {
    const presented = await identity.putNode(bed, 'n1');
    const connect = <Service extends DescService>(service: Service) =>
      createCertificateClient(bed, service, 'of-n1', presented, follower);
    const { csr } = await createKeyAndCsr();
    const request = { nodeId: 'n1', instanceId: 'instance-of-n1-0123456789', csr };
    await connect(IdentityService).renewNodeCertificate(request);
    await connect(IdentityService).renewNodeCertificate(request);
    expect(bed.callers.at(-1)?.credential).toMatchObject({ serial: presented.serial });
  });
});

describe('a client that pretends to be a coordinator', () => {
  const places = ['leader', 'follower'] as const;
  const getServer = (place: (typeof places)[number]) => (place === 'leader' ? bed : follower);

  it.each(places)('gains nothing as a user with a certificate, at a %s', async (place) => {
    await identity.putUser(bed, 'admin', [{ role: 'admin', namespace: '' }]);
    const stolen = await identity.putUserCertificate(bed, 'admin');
    await identity.putUser(bed, 'eve', [{ role: 'viewer', namespace: 'shop' }]);
    const own = await identity.putUserCertificate(bed, 'eve');
    const server = getServer(place);
    const client = createCertificateClient(bed, CoordinatorService, 'of-eve', own, server);
    const call = client.createWorkload(web, { headers: forge(stolen.chainDer) });
    expect(await codeOf(call)).toBe(Code.PermissionDenied);
    await bed.settle();
    expect(auditOf('CreateWorkload')).toEqual([
      ['user/eve', bed.connection('of-eve').remoteAddress, 'permission_denied'],
    ]);
  });

  it.each(places)('gains nothing as a user with a token, at a %s', async (place) => {
    await identity.putUser(bed, 'admin', [{ role: 'admin', namespace: '' }]);
    const { chainDer } = await identity.putUserCertificate(bed, 'admin');
    const token = await identity.putUser(bed, 'eve', operator);
    const client = createTokenClient(getServer(place), CoordinatorService, token);
    const call = client.createWorkload(web, { headers: forge(chainDer) });
    expect(await codeOf(call)).toBe(Code.PermissionDenied);
  });

  it.each(places)('gains nothing as a node, at a %s', async (place) => {
    const own = await identity.putNode(bed, 'n1');
    const other = await identity.putNode(bed, 'n2');
    const server = getServer(place);
    const client = createCertificateClient(bed, CoordinatorService, 'of-n1', own, server);
    const hello = { nodeId: 'n2', instanceId: 'instance-of-n2-0123456789' };
    const call = client.heartbeat({ hello }, { headers: forge(other.chainDer) });
    expect(await codeOf(call)).toBe(Code.PermissionDenied);
  });

  it.each([
    'cloudless-forwarded-by',
    'cloudless-forwarded-for',
    'cloudless-forwarded-certificates',
  ])('is refused for the header %s alone', async (name) => {
    const token = await identity.putUser(bed, 'eve', operator);
    const client = createTokenClient(bed, CoordinatorService, token);
    const call = client.createWorkload(web, { headers: { [name]: 'c2' } });
    expect(await codeOf(call)).toBe(Code.PermissionDenied);
  });
});

describe('in a cluster without TLS', () => {
  it('no call may name another client', async () => {
    const plain = await ApiTestBed.open();
    const plainFollower = await FollowerBed.open(plain);
    const client = createClient(CoordinatorService, plainFollower.transport);
    const call = client.listNodes({}, { headers: { 'cloudless-forwarded-for': '10.9.9.9' } });
    expect(await codeOf(call)).toBe(Code.PermissionDenied);
    await plainFollower.close();
    await plain.stop();
  });
});
