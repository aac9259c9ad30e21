import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { IngressTlsFiles } from '../model.js';

const run = promisify(execFile);

/** Files of a self-signed certificate, and both as text. */
export interface TestCertificate extends IngressTlsFiles {
  readonly pem: string;
  readonly keyPem: string;
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
  const [pem, keyPem] = [await readFile(certificateFile, 'utf8'), await readFile(keyFile, 'utf8')];
  return { certificateFile, keyFile, pem, keyPem };
}
