// Access to a cluster with TLS by a token, as cloudlessctl and joining agents have it.
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createGrpcTransport, Http2SessionManager } from '@connectrpc/connect-node';
import {
  createCoordinatorClient,
  createIdentityClient,
  type CoordinatorClient,
} from '@cloudless/api';
import { parseToken } from '@cloudless/identity';
import {
  createCoordinatorTransport,
  fetchServerRoot,
  openTlsSocket,
  type ClientTls,
  type CoordinatorConnection,
} from '@cloudless/rpc-node/client';

/** Opens a connection of a machine that has no certificate yet. */
export async function connectWithToken(
  address: string,
  token: string,
  signal: AbortSignal,
): Promise<CoordinatorConnection> {
  const tls = await findServer(address, token, signal);
  return createCoordinatorTransport({ tls: () => tls }).connect(address, signal);
}

/** Creates a client with the rights of the first administrator of a coordinator. */
export async function createAdminAccess(url: string, dataDir: string) {
  const file = join(dataDir, 'identity', 'admin.credential');
  const token = (await readFile(file, 'utf8')).trim();
  const tls = await findServer(url, token, AbortSignal.timeout(10_000));
  const transport = createGrpcTransport({
    baseUrl: url,
    sessionManager: new Http2SessionManager(
      url,
      {},
      {
        createConnection: () => openTlsSocket(url, tls),
      },
    ),
    interceptors: [
      (next) => (request) => {
        request.header.set('authorization', `Bearer ${token}`);
        return next(request);
      },
    ],
  });
  const client: CoordinatorClient = createCoordinatorClient(transport);
  return { client, identities: createIdentityClient(transport) };
}

async function findServer(address: string, token: string, signal: AbortSignal): Promise<ClientTls> {
  const caSha256s = parseToken(token)?.caSha256s ?? [];
  const { bundlePem, serverId, trustDomain } = await fetchServerRoot(address, caSha256s, signal);
  return { bundlePem, serverIds: [serverId], trustDomain };
}
