import { CloudlessError, InvalidInputError, type Violation } from '@cloudless/base';
import type { DescMessage, Message } from '@bufbuild/protobuf';
import { pathToString } from '@bufbuild/protobuf/reflect';
import { createValidator, type Violation as RuleViolation } from '@bufbuild/protovalidate';
import type { Interceptor } from '@connectrpc/connect';

/** What a pattern of the proto means, for people. */
const patternText: Readonly<Record<string, string>> = {
  '^[a-z0-9]([a-z0-9-]*[a-z0-9])?$':
    'must be a DNS label: lower-case letters, digits and "-", beginning and ending with a letter or digit',
  '^([a-z0-9]([a-z0-9-]*[a-z0-9])?)?$':
    'must be a DNS label: lower-case letters, digits and "-", beginning and ending with a letter or digit',
  '^([0-9a-f]{12,64})?$': 'must be 12 to 64 lower-case hex digits',
  '^[0-9a-f]{12,64}$': 'must be 12 to 64 lower-case hex digits',
  '^(|process|cri)$': 'must be process, cri or empty',
  '^[^=]+$': 'must be a name without "="',
};

const validator = createValidator();

/**
 * Checks a message against the rules declared in its proto.
 * @throws {@link InvalidInputError} listing every violation with the path of its field.
 */
export function validateMessage<Desc extends DescMessage>(schema: Desc, message: Message): void {
  const result = validator.validate(schema, message as never);
  if (result.kind === 'valid') return;
  if (result.kind === 'error') throw new CloudlessError('internal', 'a validation rule failed to run', { cause: result.error });
  throw new InvalidInputError(result.violations.map(toViolation));
}

function toViolation(violation: RuleViolation): Violation {
  return { field: pathToString(violation.field), message: textOf(violation) };
}

function textOf({ ruleId, message, field }: RuleViolation): string {
  const last = field.findLast((step) => step.kind === 'field');
  if (ruleId === 'string.pattern') {
    const pattern = /`(.*)`/s.exec(message)?.[1];
    return (pattern !== undefined && patternText[pattern]) || message;
  }
  if (ruleId === 'required') return `${last?.name ?? 'value'} is required`;
  return message.replace(/^value /, '').replace(/^length must be at least 1 characters$/, 'must not be empty');
}

/** Server interceptor: every request, and every message of a client stream, is checked before a handler sees it. */
export function createValidationInterceptor(): Interceptor {
  return (next) => async (request) => {
    if (!request.stream) {
      validateMessage(request.method.input, request.message);
      return next(request);
    }
    return next({ ...request, message: validateEach(request.method.input, request.message) });
  };
}

async function* validateEach<Item extends Message>(schema: DescMessage, items: AsyncIterable<Item>): AsyncGenerator<Item> {
  for await (const item of items) {
    validateMessage(schema, item);
    yield item;
  }
}
