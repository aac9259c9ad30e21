import { webcrypto } from 'node:crypto';
import {
  AuthorityKeyIdentifierExtension,
  BasicConstraintsExtension,
  ExtendedKeyUsage,
  ExtendedKeyUsageExtension,
  KeyUsageFlags,
  KeyUsagesExtension,
  Name,
  SubjectAlternativeNameExtension,
  SubjectKeyIdentifierExtension,
  X509CertificateGenerator,
} from './peculiar.js';
import type { Extension, JsonGeneralNames, JsonName } from './peculiar.js';
import { P256_ALGORITHM } from './public-key.js';

/** Attributes of a name, for example `[{ O: ['Cloudless'] }, { CN: ['node/n1'] }]`. */
export type CertificateName = JsonName;

/** Everything that a certificate says. Nothing is checked. */
export interface CertificateContent {
  /** Hex digits; the first byte is 0x01 to 0x7f. */
  readonly serial: string;
  readonly subject: CertificateName;
  /** The name, or the DER of the name in the certificate of the issuer. */
  readonly issuer: CertificateName | Uint8Array;
  /** Whole seconds. */
  readonly notBeforeMs: number;
  /** Whole seconds. */
  readonly notAfterMs: number;
  /** SubjectPublicKeyInfo, DER. */
  readonly publicKey: Uint8Array;
  /** SubjectPublicKeyInfo of the issuer, DER. */
  readonly issuerPublicKey: Uint8Array;
  readonly signingKey: webcrypto.CryptoKey;
  readonly uris: readonly string[];
  readonly dnsNames?: readonly string[];
  readonly ipAddresses?: readonly string[];
  readonly use:
    | { readonly kind: 'authority'; readonly pathLength: number }
    | { readonly kind: 'peer'; readonly usage: 'client' | 'server' | 'both' };
}

/** Creates and signs a certificate. Returns DER. */
export async function signCertificate(content: CertificateContent): Promise<Uint8Array> {
  const { issuer } = content;
  const certificate = await X509CertificateGenerator.create(
    {
      serialNumber: content.serial,
      subject: content.subject,
      issuer: issuer instanceof Uint8Array ? new Name(issuer) : issuer,
      notBefore: new Date(content.notBeforeMs),
      notAfter: new Date(content.notAfterMs),
      publicKey: content.publicKey,
      signingKey: content.signingKey,
      signingAlgorithm: P256_ALGORITHM,
      extensions: await createExtensions(content),
    },
    webcrypto,
  );
  return new Uint8Array(certificate.rawData);
}

async function createExtensions(content: CertificateContent): Promise<Extension[]> {
  const { use, uris, dnsNames = [], ipAddresses = [] } = content;
  const names: JsonGeneralNames = [
    ...uris.map((value) => ({ type: 'url' as const, value })),
    ...dnsNames.map((value) => ({ type: 'dns' as const, value })),
    ...ipAddresses.map((value) => ({ type: 'ip' as const, value })),
  ];
  return [
    ...(use.kind === 'authority'
      ? [
          new BasicConstraintsExtension(true, use.pathLength, true),
          new KeyUsagesExtension(KeyUsageFlags.keyCertSign | KeyUsageFlags.cRLSign, true),
        ]
      : [
          new BasicConstraintsExtension(false, undefined, true),
          new KeyUsagesExtension(KeyUsageFlags.digitalSignature, true),
          new ExtendedKeyUsageExtension(USAGES[use.usage], false),
        ]),
    ...(names.length > 0 ? [new SubjectAlternativeNameExtension(names, false)] : []),
    await SubjectKeyIdentifierExtension.create(content.publicKey, false, webcrypto),
    await AuthorityKeyIdentifierExtension.create(content.issuerPublicKey, false, webcrypto),
  ];
}

const USAGES = {
  client: [ExtendedKeyUsage.clientAuth],
  server: [ExtendedKeyUsage.serverAuth],
  both: [ExtendedKeyUsage.clientAuth, ExtendedKeyUsage.serverAuth],
};
