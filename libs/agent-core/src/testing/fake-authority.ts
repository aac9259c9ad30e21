import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { CloudlessError } from '@cloudless/base';
import {
  NodeCertificateSchema,
  type EnrollNodeRequest,
  type EnrollNodeResponse,
  type NodeCertificate,
  type RenewNodeCertificateRequest,
} from '@cloudless/api';
import type { CertificateRequest } from '../identity/node-identity.js';

/** Issues certificates that are plain text, and counts uses of join tokens as a coordinator does. */
export class FakeAuthority {
  bundleGeneration = 1n;
  lifetimeMs = 24 * 60 * 60_000;
  /** While set, calls fail with this error. */
  failure: CloudlessError | undefined;
  /** While true, calls have their effect but the reply is lost. */
  losesReplies = false;
  /** Tokens that are accepted. */
  readonly tokens = new Set(['token-1']);
  /** Keys with which machines joined: each is one use of a token. */
  readonly joinedKeys = new Set<string>();
  readonly renewals: RenewNodeCertificateRequest[] = [];
  /** Keys of all issued certificates in order. */
  readonly issued: string[] = [];
  private keyCount = 0;

  constructor(private readonly now: () => number) {}

  /** Creates a key, as the machine of the agent does. */
  createRequest = async (): Promise<CertificateRequest> => {
    const key = `key-${(this.keyCount += 1)}`;
    return {
      keyPem: `secret of ${key}`,
      csr: new TextEncoder().encode(key),
      publicKeySha256: key,
    };
  };

  enroll(request: EnrollNodeRequest): Pick<EnrollNodeResponse, 'certificate'> {
    this.requireWorking();
    if (!this.tokens.has(request.token))
      throw new CloudlessError('INVALID_TOKEN', 'the token is not valid');
    this.joinedKeys.add(new TextDecoder().decode(request.csr));
    return { certificate: this.issue(request.csr) };
  }

  async renew(request: RenewNodeCertificateRequest): Promise<NodeCertificate> {
    this.requireWorking();
    this.renewals.push(request);
    return this.issue(request.csr);
  }

  private requireWorking(): void {
    if (this.failure !== undefined) throw this.failure;
  }

  private issue(csr: Uint8Array): NodeCertificate {
    const key = new TextDecoder().decode(csr);
    this.issued.push(key);
    if (this.losesReplies) throw new CloudlessError('unavailable', 'the connection broke');
    return create(NodeCertificateSchema, {
      certificateChain: `certificate of ${key}`,
      trustBundle: {
        generation: this.bundleGeneration,
        pem: `roots ${this.bundleGeneration}`,
      },
      notBefore: timestampFromMs(this.now()),
      notAfter: timestampFromMs(this.now() + this.lifetimeMs),
      coordinatorIds: ['spiffe://cloudless/controller/coordinator'],
      trustDomain: 'cloudless',
    });
  }
}
