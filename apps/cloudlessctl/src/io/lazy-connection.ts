import type { CoordinatorConnection, ServerAccess } from './io.js';

/**
 * Creates a connection whose HTTP/2 client is loaded with the first call, so that a command that
 * fails before its first call does not load the client. The code for TLS is loaded only for https.
 */
export function connectLazily(server: string, access?: ServerAccess): CoordinatorConnection {
  let connection: Promise<CoordinatorConnection> | undefined;
  let isClosed = false;
  const open = async (): Promise<CoordinatorConnection> => {
    if (access === undefined) return (await import('./http2-connection.js')).connectHttp2(server);
    return (await import('./tls-connection.js')).connectWithTls(server, access);
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
