import { create } from '@bufbuild/protobuf';
import { CloudlessError } from '@cloudless/base';
import {
  PolicyDenialSchema,
  type PolicyDenial,
  type PolicyViolation,
} from '../gen/cloudless/api/policy_pb.js';

/** Violations that the message of the error names at most. */
const MAX_NAMED = 5;
/**
 * Largest size of the violations in one error, in characters. Clients refuse trailers of more than
 * 8 KiB, which contain the details in base64 and the message.
 */
const MAX_LENGTH = 2_048;

/** Error with the reason POLICY_DENIED: policies deny a workload. */
export class PolicyDeniedError extends CloudlessError {
  /** The detail that clients receive. */
  readonly denial: PolicyDenial;

  /**
   * @param workload - The denied workload.
   * @param violations - All reasons, at least one.
   */
  constructor(
    workload: { readonly namespace: string; readonly name: string },
    violations: readonly PolicyViolation[],
  ) {
    const { namespace, name } = workload;
    const listed = takeViolations(violations);
    super(
      'POLICY_DENIED',
      `policies deny workload "${namespace}/${name}": ${describe(listed, violations.length)}`,
      { metadata: { policies: [...new Set(listed.map(({ policy }) => policy))].join(',') } },
    );
    this.denial = create(PolicyDenialSchema, {
      ...{ namespace, name, totalViolations: violations.length },
      violations: [...listed],
    });
  }
}

/** Returns the first violations that fit into {@link MAX_LENGTH}, and at least one. */
function takeViolations(violations: readonly PolicyViolation[]): readonly PolicyViolation[] {
  let length = 0;
  const end = violations.findIndex(({ policy, rule, field, value, allowed }, index) => {
    length += policy.length + rule.length + field.length + value.length + allowed.length;
    return index > 0 && length > MAX_LENGTH;
  });
  return end === -1 ? violations : violations.slice(0, end);
}

function describe(listed: readonly PolicyViolation[], total: number): string {
  const shown = listed
    .slice(0, MAX_NAMED)
    .map(
      ({ policy, rule, field, value, allowed }) =>
        `policy "${policy}", rule "${rule}": ${field} is ${value}; allowed is ${allowed}`,
    );
  const rest = total - shown.length;
  return `${shown.join('; ')}${rest === 0 ? '' : `; and ${rest} more`}`;
}
