import { hasOption, type DescMessage, type Message } from '@bufbuild/protobuf';
import {
  field as fieldRules,
  message as messageRules,
  oneof as oneofRules,
} from '@bufbuild/protovalidate/gen/buf/validate/validate_pb.js';
import { listFieldsThatReach, someMessage, type MessageField } from './message-fields.js';

/**
 * Returns false when no rule in a proto file concerns the message or a message that it contains:
 * its validation can only succeed. Most messages of an agent are reports, which have no rules.
 */
export function hasApplicableRules(schema: DescMessage, message: Message): boolean {
  const { hasOwnRules, fields } = getPlan(schema);
  return hasOwnRules || someMessage(message, fields, hasApplicableRules);
}

/** What {@link hasApplicableRules} needs to know about a schema. */
interface RulePlan {
  /** The message, a field or a oneof has a rule, which may concern an absent field as well. */
  readonly hasOwnRules: boolean;
  /** Fields with messages that have rules, directly or at any depth. */
  readonly fields: readonly MessageField[];
}

const plans = new Map<DescMessage, RulePlan>();

function getPlan(schema: DescMessage): RulePlan {
  let plan = plans.get(schema);
  if (plan === undefined) {
    plan = { hasOwnRules: hasRules(schema), fields: listFieldsThatReach(schema, hasRules) };
    plans.set(schema, plan);
  }
  return plan;
}

function hasRules(schema: DescMessage): boolean {
  return (
    hasOption(schema, messageRules) ||
    schema.fields.some((field) => hasOption(field, fieldRules)) ||
    schema.oneofs.some((oneof) => hasOption(oneof, oneofRules))
  );
}
