import { execFile } from 'node:child_process';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** Paths of a certificate and its key, in PEM. */
export interface CertificateFiles {
  readonly certificate: string;
  readonly key: string;
}

/** A certificate authority for tests, made with openssl. */
export class EtcdCertificates {
  private constructor(
    private readonly directory: string,
    private readonly name: string,
  ) {}

  /**
   * Creates a CA.
   * @param directory - Where the files go; created if absent.
   */
  static async create(directory: string, name = 'ca'): Promise<EtcdCertificates> {
    await mkdir(directory, { recursive: true });
    const authority = new EtcdCertificates(directory, name);
    const { certificate, key } = authority.files;
    await run('openssl', [
      ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'],
      ...['-days', '2', '-subj', `/CN=${name}`, '-keyout', key, '-out', certificate],
    ]);
    return authority;
  }

  /** Certificate and key of the CA. */
  get files(): CertificateFiles {
    return this.filesOf(this.name);
  }

  /** Issues a certificate for servers on 127.0.0.1 and for clients. */
  async issue(name: string): Promise<CertificateFiles> {
    const files = this.filesOf(name);
    const request = join(this.directory, `${name}.csr`);
    const extensions = join(this.directory, `${name}.ext`);
    await writeFile(
      extensions,
      'subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth,clientAuth\n',
    );
    await run('openssl', [
      ...['req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'],
      ...['-subj', `/CN=${name}`, '-keyout', files.key, '-out', request],
    ]);
    await run('openssl', [
      ...['x509', '-req', '-in', request, '-CA', this.files.certificate, '-CAkey', this.files.key],
      ...['-CAcreateserial', '-days', '2', '-extfile', extensions, '-out', files.certificate],
    ]);
    return files;
  }

  private filesOf(name: string): CertificateFiles {
    return {
      certificate: join(this.directory, `${name}.crt`),
      key: join(this.directory, `${name}.key`),
    };
  }
}

/** Reads a certificate and its key. */
export async function readCertificate({ certificate, key }: CertificateFiles) {
  return {
    certificate: await readFile(certificate, 'utf8'),
    key: await readFile(key, 'utf8'),
  };
}
