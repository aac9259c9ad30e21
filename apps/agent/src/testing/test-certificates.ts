import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { CertificatePair } from '@cloudless/secrets';

const run = promisify(execFile);

/** Creates a self-signed certificate for a host, with openssl. */
export async function createTestPair(host: string): Promise<CertificatePair> {
  const { stdout } = await run('openssl', [
    ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'],
    ...[
      '-subj',
      `/CN=${host}`,
      '-days',
      '2',
      '-keyout',
      '-',
      '-addext',
      `subjectAltName=DNS:${host}`,
    ],
  ]);
  const end = stdout.indexOf('-----BEGIN CERTIFICATE-----');
  return { key: stdout.slice(0, end), certificate: stdout.slice(end) };
}
