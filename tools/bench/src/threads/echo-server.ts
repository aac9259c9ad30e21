// An HTTP/2 server in plaintext and one with TLS in one process: each answers a message of an agent
// by a message of the size of an order. The benchmark starts the process.
import * as http2 from 'node:http2';
import type { AddressInfo } from 'node:net';
import { CertificateAuthority, createServerCertificate } from '@cloudless/identity/x509';

/** First message to the benchmark. */
export interface EchoStart {
  readonly plaintextUrl: string;
  readonly secureUrl: string;
}

/** Answer to each message of the benchmark. */
export interface EchoFigures {
  /** CPU time of the process, seconds. */
  readonly cpuSeconds: number;
}

const answer = Buffer.alloc(Number(process.argv[2]));

async function listen(server: http2.Http2Server | http2.Http2SecureServer): Promise<number> {
  server.on('stream', (stream) => {
    stream.respond({ ':status': 200 });
    stream.on('error', () => undefined);
    stream.on('data', () => stream.write(answer));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
}

const { authority } = await CertificateAuthority.create({
  trustDomain: 'cloudless',
  generation: 1,
  nowMs: Date.now(),
});
const { keyPem, chain } = await createServerCertificate(authority, {
  id: { trustDomain: 'cloudless', kind: 'controller', id: 'coordinator' },
  hosts: ['127.0.0.1'],
  lifetimeMs: 3_600_000,
  nowMs: Date.now(),
});
const plaintextPort = await listen(http2.createServer());
const securePort = await listen(
  http2.createSecureServer({ key: keyPem, cert: chain.pem, minVersion: 'TLSv1.3' }),
);
const start: EchoStart = {
  plaintextUrl: `http://127.0.0.1:${plaintextPort}`,
  secureUrl: `https://127.0.0.1:${securePort}`,
};
process.send?.(start);
process.on('message', () => {
  const { user, system } = process.cpuUsage();
  process.send?.({ cpuSeconds: (user + system) / 1e6 } satisfies EchoFigures);
});
process.on('disconnect', () => process.exit(0));
