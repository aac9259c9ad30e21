import { createServer } from 'node:net';
import { networkInterfaces } from 'node:os';
import type { CoordinatorConfig } from '../config.js';
import type { CoordinatorMachine } from '../coordinator-machine.js';
import { createServerNames } from '../identity/server-names.js';

/**
 * Returns the port of the API. A coordinator that takes part in elections names its address before it
 * serves, so a free port is selected first.
 */
export async function choosePort({ host, port }: CoordinatorConfig): Promise<number> {
  if (port !== 0) return port;
  const server = createServer();
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, host, resolve);
  });
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return typeof address === 'object' && address !== null ? address.port : 0;
}

/** Returns the URL at which agents, clients and other coordinators reach this coordinator. */
export function toOwnAddress(
  { tls, host, advertise }: CoordinatorConfig,
  { hostname }: CoordinatorMachine,
  port: number,
): string {
  const addresses = Object.values(networkInterfaces()).flatMap((list) =>
    (list ?? []).filter(({ scopeid }) => (scopeid ?? 0) === 0).map(({ address }) => address),
  );
  const { primary } = createServerNames({ host, advertise, hostname, addresses });
  return `${tls === 'on' ? 'https' : 'http'}://${primary.includes(':') ? `[${primary}]` : primary}:${port}`;
}
