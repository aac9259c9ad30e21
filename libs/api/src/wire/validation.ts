import { create, type DescMessage, type DescService, type Message } from '@bufbuild/protobuf';
import { pathToString } from '@bufbuild/protobuf/reflect';
import { createValidator, type Violation as RuleViolation } from '@bufbuild/protovalidate';
import type { Interceptor } from '@connectrpc/connect';
import { CloudlessError, InvalidInputError, type Violation } from '@cloudless/base';
import { AdminService } from '../gen/cloudless/api/admin_pb.js';
import { AgentService } from '../gen/cloudless/api/agent_service_pb.js';
import { CoordinatorService } from '../gen/cloudless/api/coordinator_service_pb.js';
import { dropUnusedRules } from './unused-rules.js';
import { describeViolation } from './violation-text.js';
import { findMalformedTimes } from './well-formed-times.js';

dropUnusedRules([CoordinatorService, AgentService, AdminService].map(({ file }) => file));
const validator = createValidator();

/**
 * Validates a message against the rules in its proto.
 * @throws {@link InvalidInputError} listing the violations with the paths of their fields, at most
 *   50.
 */
export function validateMessage<Desc extends DescMessage>(schema: Desc, message: Message): void {
  // Checked first, because the rules cannot be evaluated on such values.
  const malformed = [...findMalformedTimes(schema, message)];
  if (malformed.length > 0) throw new InvalidInputError(malformed);
  const result = validator.validate(schema, message as never);
  if (result.kind === 'valid') return;
  if (result.kind === 'error')
    throw new CloudlessError('internal', 'a validation rule failed to run', {
      cause: result.error,
    });
  throw new InvalidInputError(
    limitViolations(
      MAX_VIOLATIONS,
      toViolations(result.violations.slice(0, MAX_LOOKED_AT)),
      result.violations.length,
    ),
  );
}

/**
 * Violations in one error. The limit keeps the response to a request of one kilobyte far below a
 * megabyte.
 */
const MAX_VIOLATIONS = 50;
/** Violations that are formatted; some of them are redundant and not reported. */
const MAX_LOOKED_AT = 200;

function limitViolations(
  count: number,
  shown: readonly Violation[],
  found: number,
): readonly Violation[] {
  if (shown.length <= count) return shown;
  return [
    ...shown.slice(0, count),
    { field: '', message: `and more, ${found} violations in total` },
  ];
}

/** An empty value also violates its pattern; only the first violation is reported. */
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
 * before a handler receives it.
 * @param services - Services whose rules are compiled now instead of by the first call of each
 *   method, which would block the event loop for 0.2 s.
 */
export function createValidationInterceptor(services: readonly DescService[] = []): Interceptor {
  for (const { input } of services.flatMap(({ methods }) => methods))
    validator.validate(input, create(input));
  return (next) => async (request) => {
    if (!request.stream) {
      validateMessage(request.method.input, request.message);
      return next(request);
    }
    return next({ ...request, message: validateEach(request.method.input, request.message) });
  };
}

async function* validateEach<Item extends Message>(
  schema: DescMessage,
  items: AsyncIterable<Item>,
): AsyncGenerator<Item> {
  for await (const item of items) {
    validateMessage(schema, item);
    yield item;
  }
}
