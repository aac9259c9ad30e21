import { CloudlessError } from '@cloudless/base';
import { quote } from '../quote.js';

/** What an identity stands for: the first segment of the path of a SPIFFE ID. */
export type SpiffeKind = 'node' | 'workload' | 'service' | 'controller' | 'user';

/** All kinds, in the order of the documentation. */
export const SPIFFE_KINDS: readonly SpiffeKind[] = [
  'node',
  'workload',
  'service',
  'controller',
  'user',
];

/** An identity: `spiffe://<trustDomain>/<kind>/<id>`. */
export interface SpiffeId {
  /** Lower-case letters, digits, `.`, `-` and `_`; at most 255 characters. */
  readonly trustDomain: string;
  readonly kind: SpiffeKind;
  /**
   * A DNS label; `<namespace>.<name>`, two DNS labels, for a workload; the user name for a user,
   * which may also contain `.` and `_`.
   */
  readonly id: string;
}

/** Largest length of a SPIFFE ID in bytes (SPIFFE-ID, section 2.3). */
const MAX_BYTES = 2048;
const MAX_TRUST_DOMAIN_LENGTH = 255;

const SCHEME = 'spiffe://';
const TRUST_DOMAIN = /^[a-z0-9._-]+$/;
const LABEL = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;
const USER_NAME = /^[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?$/;

/**
 * Parses the text of a SPIFFE ID. Only the exact form `spiffe://<trust domain>/<kind>/<id>` is
 * valid: no upper-case letters, port, user, query, fragment, percent encoding, empty segment, dot
 * segment or slash at the end.
 * @throws {@link CloudlessError} of reason CERTIFICATE_INVALID, with a separate text for the scheme,
 *   the trust domain, the path and the kind.
 * @see https://github.com/spiffe/spiffe/blob/main/standards/SPIFFE-ID.md
 */
export function parseSpiffeId(uri: string): SpiffeId {
  if (Buffer.byteLength(uri) > MAX_BYTES)
    throw refuse(`the SPIFFE ID is longer than ${MAX_BYTES} bytes`);
  if (!uri.startsWith(SCHEME))
    throw refuse(`the identity ${quote(uri)} does not begin with ${SCHEME}`);
  const rest = uri.slice(SCHEME.length);
  const slash = rest.indexOf('/');
  const trustDomain = slash < 0 ? rest : rest.slice(0, slash);
  if (!isTrustDomain(trustDomain)) {
    throw refuse(
      `the trust domain ${quote(trustDomain)} of the SPIFFE ID is not valid; ${TRUST_DOMAIN_RULE}`,
    );
  }
  const path = slash < 0 ? '' : rest.slice(slash);
  const [empty, kind, id, ...further] = path.split('/');
  if (empty !== '' || kind === undefined || kind === '' || id === undefined || further.length > 0)
    throw refuse(`the path ${quote(path)} of the SPIFFE ID is not of the form /<kind>/<id>`);
  if (!isSpiffeKind(kind)) {
    throw refuse(
      `the SPIFFE ID has the unknown kind ${quote(kind)}; known are ${SPIFFE_KINDS.join(', ')}`,
    );
  }
  if (!isIdOfKind(kind, id)) {
    throw refuse(
      `the path ${quote(path)} of the SPIFFE ID is not valid; a ${kind} is named by ${ID_RULES[kind]}`,
    );
  }
  return { trustDomain, kind, id };
}

/**
 * Formats a SPIFFE ID as text.
 * @throws {@link CloudlessError} of reason CERTIFICATE_INVALID when a part is not valid, so that the
 *   result can always be parsed.
 */
export function formatSpiffeId({ trustDomain, kind, id }: SpiffeId): string {
  const uri = `${SCHEME}${trustDomain}/${kind}/${id}`;
  parseSpiffeId(uri);
  return uri;
}

/** Returns true for lower-case letters, digits, `.`, `-` and `_`, at most 255 characters. */
export function isTrustDomain(text: string): boolean {
  return text.length <= MAX_TRUST_DOMAIN_LENGTH && TRUST_DOMAIN.test(text);
}

/** Continues "the trust domain is not valid; ". */
export const TRUST_DOMAIN_RULE =
  'a trust domain consists of lower-case letters, digits, dots, hyphens and underscores, at most 255 characters';

const LABEL_RULE = 'a DNS label: lower-case letters, digits and hyphens, at most 63 characters';
const ID_RULES: Readonly<Record<SpiffeKind, string>> = {
  node: LABEL_RULE,
  workload: '<namespace>.<name>, two DNS labels',
  service: LABEL_RULE,
  controller: LABEL_RULE,
  user: 'lower-case letters, digits, dots, underscores and hyphens, at most 63 characters',
};

function isIdOfKind(kind: SpiffeKind, id: string): boolean {
  if (kind === 'user') return USER_NAME.test(id);
  const labels = kind === 'workload' ? id.split('.') : [id];
  return (
    labels.length === (kind === 'workload' ? 2 : 1) && labels.every((text) => LABEL.test(text))
  );
}

function isSpiffeKind(text: string): text is SpiffeKind {
  return SPIFFE_KINDS.some((kind) => kind === text);
}

function refuse(message: string): CloudlessError {
  return new CloudlessError('CERTIFICATE_INVALID', message);
}
