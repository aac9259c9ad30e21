import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { IngressTls } from '../model.js';

const run = promisify(execFile);

/** Files of a self-signed certificate, and the certificate as text. */
export interface TestCertificate extends IngressTls {
  readonly pem: string;
}

/** Creates a self-signed certificate for hosts, with openssl. */
export async function createTestCertificate(
  directory: string,
  name: string,
  hosts: readonly string[],
): Promise<TestCertificate> {
  const certificateFile = join(directory, `${name}.crt`);
  const keyFile = join(directory, `${name}.key`);
  await run('openssl', [
    ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'],
    ...['-subj', `/CN=${name}`, '-days', '2', '-keyout', keyFile, '-out', certificateFile],
    ...['-addext', `subjectAltName=${hosts.map((host) => `DNS:${host}`).join(',')}`],
  ]);
  return { certificateFile, keyFile, pem: await readFile(certificateFile, 'utf8') };
}
