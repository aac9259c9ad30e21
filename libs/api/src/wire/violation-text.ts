import type { DescField } from '@bufbuild/protobuf';
import type { Violation as RuleViolation } from '@bufbuild/protovalidate';

const DNS_LABEL =
  'must be a DNS label: lower-case letters, digits and "-", beginning and ending with a letter or digit';
const HEX_DIGITS = 'must be 12 to 64 lower-case hex digits';

/**
 * Descriptions of the patterns in the proto files. `validation.spec.ts` fails for a pattern without
 * a description.
 */
export const PATTERN_TEXTS: Readonly<Record<string, string>> = {
  '^[a-z0-9]([a-z0-9-]*[a-z0-9])?$': DNS_LABEL,
  '^([a-z0-9]([a-z0-9-]*[a-z0-9])?)?$': DNS_LABEL,
  '^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$':
    'must be lower-case letters, digits, "-" and ".", beginning and ending with a letter or digit',
  '^[a-z0-9]([a-z0-9_.-]*[a-z0-9])?$':
    'must be lower-case letters, digits, ".", "_" and "-", beginning and ending with a letter or digit',
  '^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$':
    'must be lower-case letters, digits, ".", "_" and "-", beginning and ending with a letter or digit',
  '^[a-z0-9*-]*$': 'must be lower-case letters, digits, "-" and "*"',
  '^[a-z]+$': 'must be lower-case letters',
  '^r?w?m?$': 'must be "r", "w" and "m", each at most once and in this order',
  '^([0-9a-f]{12,64})?$': HEX_DIGITS,
  '^[0-9a-f]{12,64}$': HEX_DIGITS,
  '^[0-9a-f]{16}$': 'must be 16 lower-case hex digits',
  '^[0-9a-f]{64}$': 'must be 64 lower-case hex digits',
  '^(|process|cri)$': 'must be process, cri or empty',
  '^[^=]+$': 'must be a name without "="',
  '^[^=]*$': 'must be empty, or a name without "="',
  '^[^=\\x00]+$': 'must be a name without "=" and NUL',
  '^(/[!-~]*)?$':
    'must begin with "/" and be percent-encoded: no spaces or other than visible ASCII characters',
  "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$": "must be a header name: letters, digits and !#$%&'*+.^_`|~-",
  '^\\S[^\\r\\n]*$': 'must be one line of text that does not begin with a space',
  '^[\\t -~]*$': 'must be visible ASCII characters and spaces',
  '^[.]?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$':
    'must be letters, digits, ".", "_" and "-", beginning with a letter, a digit or one ".", and ending with a letter or digit',
  '^([.]?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$':
    'must be empty, or letters, digits, ".", "_" and "-", beginning with a letter, a digit or one ".", and ending with a letter or digit',
  '^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$':
    'must be letters, digits, ".", "_", "/" and "-", beginning and ending with a letter or digit',
  '^[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*$':
    'must be a host name: letters, digits, "-" and "_", in labels separated by "."',
  '^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$':
    'must be empty, or letters, digits, ".", "_" and "-", beginning and ending with a letter or digit',
};

/** Messages of protovalidate, each with the message that users receive instead. */
const rewordings: readonly (readonly [RegExp, string])[] = [
  [/^must be at least 1 characters$/, 'must not be empty'],
  [/^must be at (least|most) (\d+) (characters|bytes)$/, 'must be at $1 $2 $3 long'],
  [/^must contain at least 1 item\(s\)$/, 'must not be empty'],
  [/^must contain at least (\d+) item\(s\)$/, 'must have at least $1 items'],
  [/^must contain no more than (\d+) item\(s\)$/, 'must have at most $1 items'],
  [/^map must be at most (\d+) entries$/, 'must have at most $1 entries'],
  [/^repeated value must contain unique items$/, 'must not contain duplicates'],
  [
    /^must be greater than or equal to (\S+) and less than or equal to (\S+)$/,
    'must be from $1 to $2',
  ],
  [
    /^must be greater than (\S+) and less than or equal to (\S+)$/,
    'must be more than $1 and at most $2',
  ],
  [/^must be greater than or equal to (\S+)$/, 'must be $1 or more'],
];

/**
 * Describes a violation so that the text can follow the path of the field: `must be from 0 to
 * 1000000`. The text for the key of a map begins with `the key`.
 */
export function describeViolation(violation: RuleViolation): string {
  return violation.forKey ? `the key ${describeRule(violation)}` : describeRule(violation);
}

function describeRule({ ruleId, message, field }: RuleViolation): string {
  if (ruleId === 'required') return 'is required';
  if (ruleId === 'string.pattern') {
    const pattern = /`(.*)`/s.exec(message)?.[1];
    return (pattern === undefined ? undefined : PATTERN_TEXTS[pattern]) ?? message;
  }
  const names =
    ruleId === 'enum.defined_only'
      ? listEnumNames(field.findLast((step) => step.kind === 'field'))
      : [];
  if (names.length > 0) return `must be one of ${names.join(', ')}`;
  const plain = message.replace(/^value /, '');
  const reworded = rewordings.find(([words]) => words.test(plain));
  return reworded === undefined ? plain : plain.replace(...reworded);
}

function listEnumNames(field: DescField | undefined): readonly string[] {
  return field?.enum?.values.map(({ name }) => name) ?? [];
}
