import { createUsageFailure } from './call/failure.js';
import { DNS_LABEL_RULE, isDnsLabel } from './dns-label.js';
import type { WorkloadName } from './names.js';

/** Longest name of a secret or config. */
const MAX_NAME_LENGTH = 253;

/** The rule of the names of secrets and configs, for messages. */
export const OBJECT_NAME_RULE =
  'lower-case letters, digits and inner hyphens and dots, at most 253 characters';

/** Returns true for a valid name of a secret or config: a DNS subdomain. */
export function isObjectName(text: string): boolean {
  return (
    text.length <= MAX_NAME_LENGTH &&
    /^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$/.test(text)
  );
}

/**
 * Parses `[namespace/]name` of a secret or config.
 * @param noun - Kind of the named object, for the error message.
 * @throws {@link CliFailure} with exit code 2 when the namespace or the name is invalid.
 */
export function parseObjectName(
  text: string,
  defaultNamespace: string,
  noun: 'secret' | 'config',
): WorkloadName {
  const parts = text.split('/');
  const [namespace = '', name = ''] = parts.length === 1 ? [defaultNamespace, text] : parts;
  if (parts.length > 2 || !isDnsLabel(namespace))
    throw createUsageFailure(
      `${JSON.stringify(text)} is not a valid ${noun} name: expected [namespace/]name, the namespace with ${DNS_LABEL_RULE}`,
    );
  if (!isObjectName(name))
    throw createUsageFailure(
      `${JSON.stringify(text)} is not a valid ${noun} name: expected [namespace/]name, the name with ${OBJECT_NAME_RULE}`,
    );
  return { namespace, name };
}

/** Formats the name of a secret or config for messages: `secret default/db`. */
export function formatObjectName(
  noun: 'secret' | 'config',
  { namespace, name }: WorkloadName,
): string {
  return `${noun} ${namespace}/${name}`;
}
