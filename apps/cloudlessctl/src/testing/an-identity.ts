import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import {
  IssueUserCertificateResponseSchema,
  UserCredentialSchema,
  UserCredential_Kind as CredentialKind,
} from '@cloudless/api';
import type { IssueUserCertificateRequest, IssueUserCertificateResponse } from '@cloudless/api';
import { CertificateAuthority, readCsr } from '@cloudless/identity/x509';
import type { StoredIdentity } from '../identity/stored-identity.js';

const DAY_MS = 86_400_000;
/** Life of a certificate of a test user. */
export const LIFE_MS = 7 * DAY_MS;
/** SPIFFE ID of the test coordinator. */
export const SERVER_ID = 'spiffe://cloudless/controller/coordinator';

/** A coordinator that issues certificates of the user `ada`. */
export class TestIssuer {
  /** The requests, in order. */
  readonly requests: IssueUserCertificateRequest[] = [];

  private constructor(
    readonly authority: CertificateAuthority,
    private readonly getNowMs: () => number,
  ) {}

  static async create(getNowMs: () => number): Promise<TestIssuer> {
    const { authority } = await CertificateAuthority.create({
      trustDomain: 'cloudless',
      generation: 1,
      nowMs: getNowMs(),
    });
    return new TestIssuer(authority, getNowMs);
  }

  /** Handles IssueUserCertificate. */
  readonly issueUserCertificate = async (
    request: IssueUserCertificateRequest,
  ): Promise<IssueUserCertificateResponse> => {
    this.requests.push(request);
    const nowMs = this.getNowMs();
    const { publicKey } = await readCsr(request.csr);
    const { pem } = await this.authority.issue({
      id: { trustDomain: 'cloudless', kind: 'user', id: 'ada' },
      publicKey,
      lifetimeMs: LIFE_MS,
      nowMs,
      usage: 'client',
    });
    return create(IssueUserCertificateResponseSchema, {
      certificateChain: pem,
      trustBundle: this.authority.rootPem,
      coordinatorIds: [SERVER_ID],
      trustDomain: 'cloudless',
      credential: aCredential(nowMs),
    });
  };
}

/** Creates the credential of a client certificate of `ada`, which expires in 90 days. */
export function aCredential(nowMs: number) {
  return create(UserCredentialSchema, {
    id: '0m4c8e2fz6ty',
    user: 'ada',
    kind: CredentialKind.CERTIFICATE,
    description: 'laptop',
    createdAt: timestampFromMs(nowMs),
    expiresAt: timestampFromMs(nowMs + 90 * DAY_MS),
    certificateExpiresAt: timestampFromMs(nowMs + LIFE_MS),
  });
}

/**
 * Creates an identity of `ada` without real keys.
 * @param nowMs - Time at which the certificate was issued.
 */
export function anIdentity(nowMs: number, fields: Partial<StoredIdentity> = {}): StoredIdentity {
  return {
    server: 'https://cluster.example:8443',
    principal: 'user/ada',
    credentialId: '0m4c8e2fz6ty',
    loginExpiresAtMs: nowMs + 90 * DAY_MS,
    notBeforeMs: nowMs,
    notAfterMs: nowMs + LIFE_MS,
    trustDomain: 'cloudless',
    serverIds: [SERVER_ID],
    keyPem: 'KEY',
    chainPem: 'CHAIN',
    bundlePem: 'BUNDLE',
    ...fields,
  };
}

/** Returns the content of the file of an identity. */
export function formatIdentityFile(identity: StoredIdentity): string {
  return `${JSON.stringify({ format: 1, ...identity }, undefined, 2)}\n`;
}
