import { splitServers } from '../config/server-list.js';
import type { CoordinatorConnection, ServerAccess } from './io.js';

/**
 * Creates a connection whose HTTP/2 client is loaded with the first call, so that a command that
 * fails before its first call does not load the client. The code for TLS is loaded only for https.
 */
export function connectLazily(server: string, access?: ServerAccess): CoordinatorConnection {
  let connection: Promise<CoordinatorConnection> | undefined;
  let isClosed = false;
  const servers = splitServers(server);
  const open = async (): Promise<CoordinatorConnection> => {
    const openOne = await loadClient(access);
    if (servers.length === 1) {
      const { withLeaderRetry } = await import('./retry-without-leader.js');
      return withLeaderRetry(openOne(server));
    }
    const { connectToAny } = await import('./failover-connection.js');
    return connectToAny({ servers, open: openOne });
  };
  const connect = (): Promise<CoordinatorConnection> => {
    connection ??= open();
    return connection;
  };
  return {
    transport: {
      unary: async (...call) => (await connect()).transport.unary(...call),
      stream: async (...call) => (await connect()).transport.stream(...call),
    },
    close: () => {
      if (isClosed) return;
      isClosed = true;
      void connection?.then((opened) => opened.close());
    },
  };
}

async function loadClient(
  access: ServerAccess | undefined,
): Promise<(server: string) => CoordinatorConnection> {
  if (access === undefined) return (await import('./http2-connection.js')).connectHttp2;
  const { connectWithTls } = await import('./tls-connection.js');
  return (server) => connectWithTls(server, access);
}
