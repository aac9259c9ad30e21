import type { CoordinatorConnection } from './io.js';

/**
 * Creates a connection whose HTTP/2 client is loaded with the first call, so that a command that
 * fails before its first call does not load the client.
 */
export function connectLazily(server: string): CoordinatorConnection {
  let connection: Promise<CoordinatorConnection> | undefined;
  const connect = (): Promise<CoordinatorConnection> =>
    (connection ??= import('./http2-connection.js').then(({ connectHttp2 }) =>
      connectHttp2(server),
    ));
  return {
    transport: {
      unary: async (...call) => (await connect()).transport.unary(...call),
      stream: async (...call) => (await connect()).transport.stream(...call),
    },
    close: () => void connection?.then((opened) => opened.close()),
  };
}
