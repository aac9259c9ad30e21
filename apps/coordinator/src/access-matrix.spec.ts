import { readFile } from 'node:fs/promises';
import { type DescMethod } from '@bufbuild/protobuf';
import { Code } from '@connectrpc/connect';
import { UserService } from '@cloudless/api';
import { Health } from '@cloudless/api/grpc';
import { ACCESS_TABLE_SERVICES, getAccessRule } from '@cloudless/identity/authorization';
import { renderAccessDocument } from './testing/access-document.js';
import {
  PERMITTED_SILENCE_MS,
  callOnce,
  connectHttp1,
  connectHttp2,
  type CallResult,
  type ClientCertificate,
  type MatrixConnection,
} from './testing/matrix-clients.js';
import { MatrixCluster, type MatrixNode, type MatrixUser } from './testing/matrix-cluster.js';
import {
  MATRIX_COLUMNS,
  describeColumn,
  isPermitted,
  type MatrixColumn,
} from './testing/matrix-columns.js';
import { getMatrixRow, type MatrixTarget } from './testing/matrix-requests.js';

const DAY_MS = 24 * 60 * 60 * 1_000;
const methods = ACCESS_TABLE_SERVICES.flatMap((service): readonly DescMethod[] => service.methods);
/** Streams in both directions need HTTP/2: the server refuses them before anything else. */
const overHttp1 = methods.filter(({ methodKind }) => methodKind !== 'bidi_streaming');
const nameOf = (method: DescMethod): string => `${method.parent.typeName}/${method.name}`;

let cluster: MatrixCluster;
let target: MatrixTarget;
let nodes: Readonly<Record<'a' | 'b', MatrixNode>>;
/** The certificate of the workload `web`. */
let workload: ClientCertificate;
/** By `<place> <role>`. */
const users = new Map<string, MatrixUser>();

const userOf = (column: Extract<MatrixColumn, { kind: 'user' }>): MatrixUser => {
  const user = users.get(`${column.place} ${column.role ?? ''}`);
  if (user === undefined) throw new Error(`no user for ${describeColumn(column)}`);
  return user;
};

beforeAll(async () => {
  cluster = await MatrixCluster.start();
  target = await cluster.createTarget();
  nodes = { a: await cluster.joinNode('a'), b: await cluster.joinNode('b') };
  target = { ...target, replicaId: await cluster.runReplica(nodes.a) };
  workload = await (await cluster.loadAuthority()).issue('workload', 'shop.web');
  for (const column of MATRIX_COLUMNS) {
    if (column.kind !== 'user') continue;
    const { place, role } = column;
    const namespace = { none: '', inside: 'shop', outside: 'home', cluster: '' }[place];
    const name = `${place}-${role ?? 'user'}`;
    users.set(`${place} ${role ?? ''}`, await cluster.createUser(name, role, namespace));
  }
}, 60_000);
afterAll(() => cluster.close());

/** The objects that the calls of a principal are about. */
function targetOf(column: MatrixColumn): MatrixTarget {
  if (column.kind === 'user') {
    const isOwn = column.place === 'inside' || column.place === 'none';
    return { ...target, nodeId: 'a', user: isOwn ? userOf(column).name : 'other' };
  }
  const { nodeId, instanceId } =
    column.kind === 'node' && column.place === 'other' ? nodes.b : nodes.a;
  return { ...target, nodeId, instanceId, user: 'other' };
}

function isRefusal(method: DescMethod, { code }: CallResult): boolean {
  return (
    code === Code.Unauthenticated ||
    code === Code.PermissionDenied ||
    (code === Code.NotFound && getMatrixRow(method).namesId === true)
  );
}

/**
 * A call that was neither refused nor stopped by anything but its request: the connection and the
 * server work.
 */
function isAnswer({ code, text = '' }: CallResult): boolean {
  return (
    code === 'ok' ||
    (code !== Code.Unknown && code !== Code.Internal && code !== Code.Unavailable) ||
    (code === Code.Unavailable && text.endsWith('is not connected'))
  );
}

/** Returns true when the answer of a list contains objects of the namespace `shop`. */
function showsShop({ message }: CallResult): boolean {
  const text =
    JSON.stringify(message ?? {}, (_key, value: unknown) =>
      typeof value === 'bigint' ? String(value) : value,
    ) ?? '';
  return text.includes('"shop"') || text.includes(target.planId);
}

/** Calls some RPCs one after the other. Returns the cells that differ from the table. */
async function findDifferences(
  column: MatrixColumn,
  connection: MatrixConnection,
  called: readonly DescMethod[],
): Promise<readonly string[]> {
  const differences: string[] = [];
  const calls = called.flatMap((method) => {
    const { request, requestWithToken } = getMatrixRow(method);
    return [
      { method, request, permitted: isPermitted(method, column) },
      ...(requestWithToken === undefined
        ? []
        : [
            {
              ...{ method, request: requestWithToken },
              permitted: isPermitted(method, column, /* hasAccessToken */ true),
            },
          ]),
    ];
  });
  for (const { method, request, permitted } of calls) {
    const row = getMatrixRow(method);
    if (permitted && row.onlyWhenRefused === true) continue;
    const result = await callOnce(
      ...([connection, method, request(targetOf(column))] as const),
      permitted ? PERMITTED_SILENCE_MS : undefined,
    );
    const outcome = `${result.code === 'ok' ? 'ok' : Code[result.code]} ${result.text ?? ''}`;
    const asExpected = permitted
      ? !isRefusal(method, result) && isAnswer(result)
      : isRefusal(method, result);
    if (!asExpected)
      differences.push(
        `${describeColumn(column)}: ${nameOf(method)} should be ${permitted ? 'permitted' : 'refused'}: ${outcome}`,
      );
    const isForeign = column.kind === 'user' && column.place === 'outside';
    if (permitted && row.isUnscopedList === true && showsShop(result) === isForeign)
      differences.push(
        `${describeColumn(column)}: ${nameOf(method)} shows objects of another namespace, or hides those of its own`,
      );
  }
  return differences;
}

function certificateOf(column: MatrixColumn): ClientCertificate | undefined {
  if (column.kind === 'user') return userOf(column).certificate;
  if (column.kind === 'workload') return workload;
  return column.kind === 'node' ? nodes.a.certificate : undefined;
}

const columns = MATRIX_COLUMNS.map((column) => ({ name: describeColumn(column), column }));

describe('access matrix of a coordinator with TLS', () => {
  it.each(columns)(
    'permits $name exactly the calls of the access table on new connections',
    async ({ column }) => {
      const certificate = certificateOf(column);
      for (const service of ACCESS_TABLE_SERVICES) {
        const connection = connectHttp2(cluster.url, { certificate });
        expect(await findDifferences(column, connection, service.methods)).toEqual([]);
        connection.close();
      }
    },
  );

  it.each(columns)(
    'permits $name exactly the calls of the access table on an open connection',
    async ({ column }) => {
      const connection = connectHttp2(cluster.url, { certificate: certificateOf(column) });
      await callOnce(connection, Health.method.check, {});
      expect(await findDifferences(column, connection, methods)).toEqual([]);
      connection.close();
    },
  );

  it.each(columns.filter(({ column }) => !['node', 'workload'].includes(column.kind)))(
    'permits $name exactly the calls of the access table over HTTP/1.1 with a bearer token',
    async ({ column }) => {
      const token = column.kind === 'user' ? userOf(column).token : undefined;
      const connection = connectHttp1(cluster.url, token);
      expect(await findDifferences(column, connection, overHttp1)).toEqual([]);
      connection.close();
    },
  );
});

/** The principal for which invalid credentials of each RPC are made: one that may call it. */
function listColumnsFor(method: DescMethod): readonly MatrixColumn[] {
  const rule = getAccessRule(method);
  return rule?.node !== undefined
    ? [{ kind: 'node', place: 'itself' }]
    : [{ kind: 'user', role: 'admin', place: 'cluster' }];
}

/** Calls every RPC on a connection of its own. Returns the calls that were not refused. */
async function findAccepted(
  connect: (column: MatrixColumn) => MatrixConnection | Promise<MatrixConnection>,
  permitted: (method: DescMethod, column: MatrixColumn) => boolean = () => false,
): Promise<readonly string[]> {
  const cells = methods.flatMap((method) =>
    listColumnsFor(method).map((column) => ({ method, column })),
  );
  const results = await Promise.all(
    cells.map(async ({ method, column }) => ({
      method,
      column,
      connection: await connect(column),
    })),
  );
  const wrong: string[] = [];
  for (const { method, column, connection } of results) {
    const result = await callOnce(
      connection,
      method,
      getMatrixRow(method).request(targetOf(column)),
    );
    const isRefused = result.code === Code.Unauthenticated || result.code === Code.PermissionDenied;
    if (isRefused === permitted(method, column))
      wrong.push(
        `${nameOf(method)}: ${result.code === 'ok' ? 'ok' : Code[result.code]} ${result.text ?? ''}`,
      );
    connection.close();
  }
  return wrong;
}

/** Calls RPCs over one connection with a bad token. Returns the calls that were not refused. */
async function findAcceptedOver(
  connection: MatrixConnection,
  called: readonly DescMethod[],
): Promise<readonly string[]> {
  const accepted: string[] = [];
  for (const method of called) {
    const request = getMatrixRow(method).request({ ...target, nodeId: 'a', user: 'other' });
    const { code } = await callOnce(connection, method, request);
    if (code !== Code.Unauthenticated)
      accepted.push(`${nameOf(method)}: ${code === 'ok' ? 'ok' : Code[code]}`);
  }
  connection.close();
  return accepted;
}

describe('access matrix of invalid credentials', () => {
  it.each(['of another authority', 'of another trust domain', 'with two URIs'] as const)(
    'refuses every call with a certificate %s',
    async (mistake) => {
      const authority = await cluster.loadAuthority();
      const wrong = {
        node: await authority.issueMistake(mistake, 'node', 'a'),
        user: await authority.issueMistake(mistake, 'user', 'cluster-admin'),
      };
      expect(
        await findAccepted((column) =>
          connectHttp2(cluster.url, {
            certificate: column.kind === 'node' ? wrong.node : wrong.user,
          }),
        ),
      ).toEqual([]);
    },
  );

  it('refuses every call with a certificate of a workload that does not exist', async () => {
    const certificate = await (await cluster.loadAuthority()).issue('workload', 'shop.none');
    expect(await findAccepted(() => connectHttp2(cluster.url, { certificate }))).toEqual([]);
  });

  it.each(['unknown', 'tampered', 'malformed'] as const)(
    'refuses every call over HTTP/1.1 with a token that is %s',
    async (kind) => {
      const [prefix = '', id = '', secret = '', ca = ''] = userOf({
        kind: 'user',
        role: 'admin',
        place: 'cluster',
      }).token.split('.');
      const token = {
        unknown: [prefix, 'aaaaaaaaaaaa', secret, ca].join('.'),
        tampered: [prefix, id, `${secret.startsWith('A') ? 'B' : 'A'}${secret.slice(1)}`, ca].join(
          '.',
        ),
        malformed: 'clu1.x',
      }[kind];
      expect(await findAcceptedOver(connectHttp2(cluster.url, { token }), methods)).toEqual([]);
      expect(await findAcceptedOver(connectHttp1(cluster.url, token), overHttp1)).toEqual([]);
    },
  );

  const open = async (column: MatrixColumn): Promise<MatrixConnection> => {
    const connection = connectHttp2(cluster.url, { certificate: certificateOf(column) });
    expect((await callOnce(connection, UserService.method.whoAmI, {})).code).toBe('ok');
    return connection;
  };
  /** Opens one connection for each cell, changes something, then calls over these connections. */
  const findAcceptedAfter = async (
    change: () => Promise<void> | void,
    permitted?: (method: DescMethod, column: MatrixColumn) => boolean,
  ): Promise<readonly string[]> => {
    const waiting: MatrixConnection[] = [];
    const cells = methods.flatMap((method) => listColumnsFor(method));
    for (const column of cells) waiting.push(await open(column));
    await change();
    return findAccepted(() => waiting.shift() as MatrixConnection, permitted);
  };
  const connectWithCertificate = (column: MatrixColumn): MatrixConnection =>
    connectHttp2(cluster.url, { certificate: certificateOf(column) });
  /** A node with an expired certificate may renew it, and do what everybody may. */
  const isForExpired = (method: DescMethod, { kind }: MatrixColumn): boolean =>
    kind === 'node' && getAccessRule(method)?.expiredNode === true;

  it('refuses every call with a certificate that is not yet valid', async () => {
    expect(await findAcceptedAfter(() => void (cluster.clockOffsetMs = -10 * DAY_MS))).toEqual([]);
    expect(await findAccepted(connectWithCertificate)).toEqual([]);
    cluster.clockOffsetMs = 0;
  });

  it('refuses every call but the renewal of a node with a certificate that has expired', async () => {
    expect(
      await findAcceptedAfter(() => void (cluster.clockOffsetMs = 8 * DAY_MS), isForExpired),
    ).toEqual([]);
    expect(await findAccepted(connectWithCertificate, isForExpired)).toEqual([]);
    cluster.clockOffsetMs = 0;
  });

  it('refuses every call with a credential that was revoked, and of a banned node', async () => {
    const user = userOf({ kind: 'user', role: 'admin', place: 'cluster' });
    const wrong = await findAcceptedAfter(async () => {
      await cluster.admin.identity.banNode({ nodeId: 'a' });
      await cluster.admin.users.revokeUserToken({
        user: user.name,
        id: user.token.split('.')[1] ?? '',
      });
    });
    expect(wrong).toEqual([]);
    expect(await findAccepted(connectWithCertificate)).toEqual([]);
    const { token } = user;
    expect(await findAcceptedOver(connectHttp2(cluster.url, { token }), methods)).toEqual([]);
    expect(await findAcceptedOver(connectHttp1(cluster.url, token), overHttp1)).toEqual([]);
  });
});

describe('docs/operating/access.md', () => {
  it('shows the rules of the access table', async () => {
    const file = new URL('../../../docs/operating/access.md', import.meta.url);
    const page = await readFile(file, 'utf8');
    expect(page).toBe(renderAccessDocument(page));
  });
});
