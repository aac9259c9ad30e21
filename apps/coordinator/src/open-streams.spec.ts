import type { DescMethod } from '@bufbuild/protobuf';
import { Code } from '@connectrpc/connect';
import { CoordinatorService, Role } from '@cloudless/api';
import { connectHttp2, followUntilEnd, type MatrixConnection } from './testing/matrix-clients.js';
import { MatrixCluster, type MatrixUser } from './testing/matrix-cluster.js';

const { watchNodes, watchWorkloads, watchEvents, session } = CoordinatorService.method;
/** Promise of the operating guide: bans and revocations take effect within this time. */
const WITHIN_MS = 5_000;

let cluster: MatrixCluster;
let clusterId: string;

beforeAll(async () => {
  cluster = await MatrixCluster.start();
  ({ clusterId } = await cluster.createTarget());
}, 60_000);
afterAll(() => cluster.close());

/** Opens a stream, makes a change once the stream has answered, and waits for its end. */
async function endAfter(
  connection: MatrixConnection,
  method: DescMethod,
  request: object,
  change: () => Promise<unknown>,
): Promise<string> {
  let changedMs = 0;
  const code = await followUntilEnd(connection, method, request, async () => {
    changedMs = performance.now();
    await change();
  });
  connection.close();
  expect(performance.now() - changedMs).toBeLessThan(WITHIN_MS);
  return code === 'ok' ? 'ok' : (Code[code] ?? '');
}

const overToken = ({ token }: MatrixUser) => connectHttp2(cluster.url, { token });
const overCertificate = ({ certificate }: MatrixUser) => connectHttp2(cluster.url, { certificate });
const idOf = ({ token }: MatrixUser): string => token.split('.')[1] ?? '';

describe('open streams of a coordinator with TLS', () => {
  it.each([
    ['a token', overToken],
    ['a certificate that was issued for the token', overCertificate],
  ] as const)('end within 5 s when the token is revoked, over %s', async (name, connect) => {
    const user = await cluster.createUser(`revoked-${name.length}`, 'viewer');
    const end = endAfter(connect(user), watchNodes, {}, () =>
      cluster.admin.users.revokeUserToken({ user: user.name, id: idOf(user) }),
    );
    expect(await end).toBe('Unauthenticated');
  });

  it('end within 5 s when their user is deleted', async () => {
    const user = await cluster.createUser('deleted', 'viewer');
    const end = endAfter(overCertificate(user), watchNodes, {}, () =>
      cluster.admin.users.deleteUser({ name: user.name }),
    );
    expect(await end).toBe('Unauthenticated');
  });

  it('end within 5 s when the last role is revoked', async () => {
    const user = await cluster.createUser('demoted', 'viewer');
    const end = endAfter(overCertificate(user), watchEvents, {}, () =>
      cluster.admin.users.revoke({ user: user.name, role: Role.VIEWER }),
    );
    expect(await end).toBe('PermissionDenied');
  });

  it('of all namespaces start again when their user gets another role', async () => {
    const user = await cluster.createUser('promoted', 'viewer', 'shop');
    const end = endAfter(overToken(user), watchWorkloads, {}, () =>
      cluster.admin.users.grant({ user: user.name, role: Role.VIEWER, namespace: 'bank' }),
    );
    expect(await end).toBe('OutOfRange');
  });

  it('of a node end within 5 s when the node is banned', async () => {
    const { nodeId, instanceId, certificate } = await cluster.joinNode('banned');
    const hello = { nodeId, instanceId, clusterId, protocolMin: 1, protocolMax: 2 };
    const end = endAfter(
      connectHttp2(cluster.url, { certificate }),
      session,
      { message: { case: 'hello', value: hello } },
      () => cluster.admin.identity.banNode({ nodeId }),
    );
    expect(await end).toBe('PermissionDenied');
  });
});
