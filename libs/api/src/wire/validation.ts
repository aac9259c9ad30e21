import { create, type DescMessage, type DescService, type Message } from '@bufbuild/protobuf';
import { pathToString } from '@bufbuild/protobuf/reflect';
import {
  createValidator,
  type Validator,
  type Violation as RuleViolation,
} from '@bufbuild/protovalidate';
import type { Interceptor } from '@connectrpc/connect';
import { CloudlessError, InvalidInputError, type Violation } from '@cloudless/base';
import { AdminService } from '../gen/cloudless/api/admin_pb.js';
import { AgentService } from '../gen/cloudless/api/agent_service_pb.js';
import { CoordinatorService } from '../gen/cloudless/api/coordinator_service_pb.js';
import { hasApplicableRules } from './applicable-rules.js';
import { dropUnusedRules } from './unused-rules.js';
import { mapStream } from './map-stream.js';
import { describeViolation } from './violation-text.js';
import { findMalformedTimes } from './well-formed-times.js';

let validator: Validator | undefined;
/**
 * Returns the validator. The first call reads the rules of all messages, which takes tens of
 * milliseconds; a program that validates nothing does not spend them.
 */
function getValidator(): Validator {
  if (validator === undefined) {
    dropUnusedRules([CoordinatorService, AgentService, AdminService].map(({ file }) => file));
    validator = createValidator();
  }
  return validator;
}

/**
 * Validates a message against the rules in its proto file.
 * @throws {@link InvalidInputError} with at most {@link MAX_VIOLATIONS} violations, each with the
 *   path of its field.
 */
export function validateMessage<Desc extends DescMessage>(schema: Desc, message: Message): void {
  // Malformed times are found first, because the rules cannot be evaluated on them.
  const malformed = findMalformedTimes(schema, message);
  if (malformed.length > 0) throw new InvalidInputError(malformed);
  // The validator reflects on a message and creates objects for it even when nothing is to check.
  if (!hasApplicableRules(schema, message)) return;
  const result = getValidator().validate(schema, message as never);
  if (result.kind === 'valid') return;
  if (result.kind === 'error')
    throw new CloudlessError('internal', 'a validation rule failed to run', {
      cause: result.error,
    });
  throw new InvalidInputError(
    limitViolations(
      MAX_VIOLATIONS,
      toViolations(result.violations.slice(0, MAX_FORMATTED)),
      result.violations.length,
    ),
  );
}

/** Violations in one error, so that a small request never causes a large response. */
const MAX_VIOLATIONS = 50;
/** Violations that are formatted: more than are reported, because some turn out to be redundant. */
const MAX_FORMATTED = 200;

/**
 * Returns at most `limit` violations, and one more with the total number when some are omitted.
 * @param total - Number of all violations.
 */
function limitViolations(
  limit: number,
  violations: readonly Violation[],
  total: number,
): readonly Violation[] {
  if (violations.length <= limit) return violations;
  return [
    ...violations.slice(0, limit),
    { field: '', message: `and more, ${total} violations in total` },
  ];
}

/**
 * Converts violations of rules. An empty text that must not be empty usually violates its pattern
 * too; only the first of these violations is returned.
 */
function toViolations(found: readonly RuleViolation[]): readonly Violation[] {
  const toFieldKey = ({ field, forKey }: RuleViolation): string =>
    `${forKey} ${pathToString(field)}`;
  const empty = new Set(found.filter(({ ruleId }) => ruleId === 'string.min_len').map(toFieldKey));
  return found
    .filter(
      (violation) => violation.ruleId !== 'string.pattern' || !empty.has(toFieldKey(violation)),
    )
    .map((violation) => ({
      field: pathToString(violation.field),
      message: describeViolation(violation),
    }));
}

/**
 * Creates a server interceptor that validates every request, and every message of a client stream,
 * before the handler receives it.
 * @param services - Services whose rules are compiled at once, which takes about 0.2 s. The rules
 *   of other services are compiled by the first call of each method and block the event loop then.
 */
export function createValidationInterceptor(services: readonly DescService[] = []): Interceptor {
  const shared = getValidator();
  for (const { input } of services.flatMap(({ methods }) => methods))
    shared.validate(input, create(input));
  return (next) => async (request) => {
    if (!request.stream) {
      validateMessage(request.method.input, request.message);
      return next(request);
    }
    return next({ ...request, message: validateEach(request.method.input, request.message) });
  };
}

/** Passes the messages of a stream on, and fails at the first invalid message. */
function validateEach<Item extends Message>(
  schema: DescMessage,
  items: AsyncIterable<Item>,
): AsyncIterable<Item> {
  return mapStream(items, (item) => {
    validateMessage(schema, item);
    return item;
  });
}
