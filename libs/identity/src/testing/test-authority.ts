import { createPrivateKey, generateKeyPairSync, webcrypto } from 'node:crypto';
import { formatSpiffeId } from '../spiffe/spiffe-id.js';
import type { SpiffeKind } from '../spiffe/spiffe-id.js';
import { readCertificate } from '../x509/certificate.js';
import { CertificateAuthority } from '../x509/certificate-authority.js';
import type { AuthorityPems } from '../x509/certificate-authority.js';
import { createKeyAndCsr, readCsr } from '../x509/csr.js';
import { Name, X509CertificateGenerator } from '../x509/peculiar.js';
import type { Extension } from '../x509/peculiar.js';
import { decodeCertificates } from '../x509/pem.js';
import { P256_ALGORITHM } from '../x509/public-key.js';
import { encodeCertificates } from '../x509/read-chain.js';
import { signCertificate } from '../x509/sign-certificate.js';
import type { CertificateContent } from '../x509/sign-certificate.js';

/** A key and a chain, as a TLS client or server presents them. */
export interface TestCredential {
  readonly keyPem: string;
  /** Leaf, issuing certificate, root. */
  readonly chainPem: string;
  /** The same, DER. */
  readonly chainDer: readonly Uint8Array[];
  /** Serial number of the leaf. */
  readonly serial: string;
}

/** Mistakes in certificates, each of which a server must refuse. */
export const CERTIFICATE_MISTAKES = [
  'expired',
  'not yet valid',
  'of another authority',
  'of another authority with the same names',
  'of another trust domain',
  'of an unknown kind',
  'with two URIs',
  'without a URI',
  'of an authority',
  'for another usage',
  'self-signed',
  'of another generation',
  'with an RSA key',
  'with a changed signature',
  'without its issuing certificate',
] as const;
/** See {@link CERTIFICATE_MISTAKES}. */
export type CertificateMistake = (typeof CERTIFICATE_MISTAKES)[number];

const HOUR_MS = 3_600_000;

/** A certificate authority whose key is at hand, so that it also signs what the real one refuses. */
export class TestAuthority {
  private constructor(
    readonly authority: CertificateAuthority,
    private readonly pems: AuthorityPems,
    private readonly trustDomain: string,
    private readonly nowMs: number,
  ) {}

  /** The root certificate: the trust bundle of the cluster. */
  get bundlePem(): string {
    return this.pems.rootPem;
  }

  /** Creates an authority. `nowMs` is the time of everything that the authority signs. */
  static async create(options: {
    readonly nowMs: number;
    readonly trustDomain?: string;
    readonly generation?: number;
  }): Promise<TestAuthority> {
    const { nowMs, trustDomain = 'cloudless', generation = 1 } = options;
    const { authority, ...pems } = await CertificateAuthority.create({
      ...{ trustDomain, generation, nowMs },
    });
    return new TestAuthority(authority, pems, trustDomain, nowMs);
  }

  /** Takes the keys of a real authority, for example from the files of a coordinator. */
  static async load(
    pems: AuthorityPems,
    options: {
      readonly nowMs: number;
      readonly trustDomain?: string;
      readonly generation?: number;
    },
  ): Promise<TestAuthority> {
    const { nowMs, trustDomain = 'cloudless', generation = 1 } = options;
    const authority = await CertificateAuthority.load(pems, { trustDomain, generation, nowMs });
    return new TestAuthority(authority, pems, trustDomain, nowMs);
  }

  /** Issues a valid certificate for a new key. */
  async issue(kind: SpiffeKind, id: string, lifetimeMs = HOUR_MS): Promise<TestCredential> {
    const { keyPem, csr } = await createKeyAndCsr();
    const { publicKey } = await readCsr(csr);
    const { trustDomain, nowMs } = this;
    const { pem, serial } = await this.authority.issue({
      ...{ id: { trustDomain, kind, id }, publicKey, lifetimeMs, nowMs, usage: 'both' },
    });
    return toCredential(keyPem, decodeCertificates(pem, 'the chain'), serial);
  }

  /** Issues a certificate for a new key that is valid except for one mistake. */
  async issueMistake(
    mistake: CertificateMistake,
    kind: SpiffeKind = 'node',
    id = 'n1',
  ): Promise<TestCredential> {
    const { nowMs, trustDomain } = this;
    const uri = formatSpiffeId({ trustDomain, kind, id });
    switch (mistake) {
      case 'expired':
        return this.sign({ notBeforeMs: nowMs - 2 * HOUR_MS, notAfterMs: nowMs - HOUR_MS }, uri);
      case 'not yet valid':
        return this.sign({ notBeforeMs: nowMs + HOUR_MS, notAfterMs: nowMs + 2 * HOUR_MS }, uri);
      case 'of another authority':
        return (await TestAuthority.create({ nowMs, trustDomain, generation: 99 })).issue(kind, id);
      case 'of another authority with the same names':
        return (await TestAuthority.create({ nowMs, trustDomain })).issue(kind, id);
      case 'of another trust domain':
        return this.sign({ uris: [uri.replace(`//${trustDomain}/`, '//other/')] }, uri);
      case 'of an unknown kind':
        return this.sign({ uris: [`spiffe://${trustDomain}/pod/${id}`] }, uri);
      case 'with two URIs':
        return this.sign({ uris: [uri, `${uri}2`] }, uri);
      case 'without a URI':
        return this.sign({ uris: [], dnsNames: [id] }, uri);
      case 'of an authority':
        return this.sign({ use: { kind: 'authority', pathLength: 0 } }, uri);
      case 'for another usage':
        return this.sign({ use: { kind: 'peer', usage: 'server' } }, uri);
      case 'self-signed':
        return this.signSelf(uri);
      case 'of another generation':
        return this.mixGenerations(kind, id);
      case 'with an RSA key':
        return this.signRsa(uri);
      case 'with a changed signature':
        return changeSignature(await this.issue(kind, id));
      case 'without its issuing certificate': {
        const { keyPem, chainDer, serial } = await this.issue(kind, id);
        return toCredential(keyPem, [chainDer[0]!, chainDer[2]!], serial);
      }
    }
  }

  /** Signs a certificate that says what `changes` say, whatever that is. */
  async sign(changes: Partial<CertificateContent>, uri: string): Promise<TestCredential> {
    const { keyPem, csr } = await createKeyAndCsr();
    const { publicKey } = await readCsr(csr);
    return this.signWith({ publicKey, ...changes }, uri, keyPem);
  }

  /** Signs a certificate for a new key with exactly these extensions. */
  async signExtensions(extensions: Extension[]): Promise<TestCredential> {
    const { nowMs, pems } = this;
    const { keyPem, csr } = await createKeyAndCsr();
    const upper = decodeCertificates(pems.issuingPem + pems.rootPem, 'upper');
    const certificate = await X509CertificateGenerator.create(
      {
        serialNumber: '01',
        subject: 'CN=test',
        issuer: new Name(readCertificate(upper[0]!, 'issuing').subject),
        notBefore: new Date(nowMs - HOUR_MS),
        notAfter: new Date(nowMs + HOUR_MS),
        publicKey: (await readCsr(csr)).publicKey,
        signingKey: await importKey(pems.issuingKeyPem),
        signingAlgorithm: P256_ALGORITHM,
        extensions,
      },
      webcrypto,
    );
    return toCredential(keyPem, [new Uint8Array(certificate.rawData), ...upper], '01');
  }

  private async signWith(
    changes: Partial<CertificateContent> & Pick<CertificateContent, 'publicKey'>,
    uri: string,
    keyPem: string,
  ): Promise<TestCredential> {
    const { nowMs, pems } = this;
    const [issuingDer = new Uint8Array()] = decodeCertificates(pems.issuingPem, 'issuing');
    const [rootDer = new Uint8Array()] = decodeCertificates(pems.rootPem, 'root');
    const issuing = readCertificate(issuingDer, 'issuing');
    const content: CertificateContent = {
      serial: '01',
      subject: [{ CN: ['test'] }],
      issuer: issuing.subject,
      notBeforeMs: nowMs - HOUR_MS,
      notAfterMs: nowMs + HOUR_MS,
      issuerPublicKey: issuing.publicKey,
      signingKey: await importKey(pems.issuingKeyPem),
      uris: [uri],
      use: { kind: 'peer', usage: 'client' },
      ...changes,
    };
    const der = await signCertificate({
      ...content,
      notBeforeMs: Math.floor(content.notBeforeMs / 1000) * 1000,
      notAfterMs: Math.floor(content.notAfterMs / 1000) * 1000,
    });
    return toCredential(keyPem, [der, issuingDer, rootDer], content.serial);
  }

  private async signSelf(uri: string): Promise<TestCredential> {
    const { keyPem, csr } = await createKeyAndCsr();
    const { publicKey } = await readCsr(csr);
    const name = [{ CN: ['test'] }];
    const signingKey = await importKey(keyPem);
    return this.signWith(
      { publicKey, signingKey, issuer: name, subject: name, issuerPublicKey: publicKey },
      uri,
      keyPem,
    );
  }

  private async signRsa(uri: string): Promise<TestCredential> {
    const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
    const spki = new Uint8Array(publicKey.export({ format: 'der', type: 'spki' }));
    const keyPem = privateKey.export({ format: 'pem', type: 'pkcs8' }).toString();
    return this.signWith({ publicKey: spki }, uri, keyPem);
  }

  /** The leaf is of a second generation of the same names, the certificates above are ours. */
  private async mixGenerations(kind: SpiffeKind, id: string): Promise<TestCredential> {
    const { nowMs, trustDomain } = this;
    const other = await TestAuthority.create({ nowMs, trustDomain });
    const { keyPem, chainDer, serial } = await other.issue(kind, id);
    const upper = decodeCertificates(this.pems.issuingPem + this.pems.rootPem, 'upper');
    return toCredential(keyPem, [chainDer[0]!, ...upper], serial);
  }
}

function changeSignature({ keyPem, chainDer, serial }: TestCredential): TestCredential {
  const leaf = Uint8Array.from(chainDer[0]!);
  leaf[leaf.length - 1]! ^= 1;
  return toCredential(keyPem, [leaf, ...chainDer.slice(1)], serial);
}

function toCredential(
  keyPem: string,
  chainDer: readonly Uint8Array[],
  serial: string,
): TestCredential {
  return { keyPem, chainPem: encodeCertificates(chainDer), chainDer, serial };
}

/** Imports a private key (PKCS #8, PEM) for signatures. */
export function importKey(keyPem: string): Promise<webcrypto.CryptoKey> {
  const pkcs8 = createPrivateKey(keyPem).export({ format: 'der', type: 'pkcs8' });
  return webcrypto.subtle.importKey('pkcs8', pkcs8, P256_ALGORITHM, false, ['sign']);
}
