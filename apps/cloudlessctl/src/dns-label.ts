/** DNS label: the format of namespace and workload names. */
const DNS_LABEL = /^[a-z0-9]([a-z0-9-]*[a-z0-9])?$/;
/** Maximum length of a DNS label. */
const MAX_NAME_LENGTH = 63;

/** The rule of {@link isDnsLabel} in words. */
export const DNS_LABEL_RULE = 'up to 63 lower-case letters, digits and inner hyphens';

/** Returns true when a text is a valid name of a workload or namespace. */
export function isDnsLabel(text: string): boolean {
  return text.length <= MAX_NAME_LENGTH && DNS_LABEL.test(text);
}
