import { normalizeCapability, type SecurityContext } from '@cloudless/api';
import type { Finding } from '../model.js';
import { show } from './config-reader.js';
import type { RuleDefinition } from './rule-definition.js';

const ALL = 'ALL';

/** Linux capabilities. */
export const capabilities: RuleDefinition<'CAPABILITIES'> = {
  needsContainer: true,
  read: (reader) => {
    const isCapability = (text: string) => normalizeCapability(text) !== undefined;
    const options = {
      isAllowed: isCapability,
      expected: 'Linux capabilities such as NET_ADMIN, or ALL',
    };
    const config = {
      ...reader.texts('allowedAdd', { ...options, allowEmpty: true }),
      ...reader.texts('deniedAdd', options),
      ...reader.texts('requiredDrop', options),
    };
    reader.requireOneOf('allowedAdd', 'deniedAdd', 'requiredDrop');
    return config;
  },
  create: (config) => {
    const allowed = config.allowedAdd === undefined ? undefined : toNames(config.allowedAdd);
    const denied = toNames(config.deniedAdd ?? []);
    const required = toNames(config.requiredDrop ?? []);
    const allowedText = describe('adding', config.allowedAdd);
    const deniedText = `adding none of ${(config.deniedAdd ?? []).join(', ')}`;
    const refusesAll = denied.size > 0 || (allowed !== undefined && !allowed.has(ALL));
    return ({ spec: { security } }) => {
      const findings: Finding[] = [];
      if (security?.privileged === true && refusesAll) findings.push(PRIVILEGED);
      for (const { name, field } of listAdded(security)) {
        if (denied.has(name) || (name === ALL && denied.size > 0) || denied.has(ALL))
          findings.push({ field, found: name, allowed: deniedText });
        else if (allowed !== undefined && !allowed.has(name) && !allowed.has(ALL))
          findings.push({ field, found: name, allowed: allowedText });
      }
      if (required.size > 0) findings.push(...findKept(security, required));
      return findings;
    };
  },
};

/** A privileged container has all capabilities, whatever it adds and drops. */
const PRIVILEGED: Finding = {
  field: 'spec.security.privileged',
  found: 'true, which adds all capabilities',
  allowed: 'false',
};

function describe(verb: string, names: readonly string[] | undefined): string {
  return names === undefined || names.length === 0
    ? `${verb} no capability`
    : `${verb} only ${names.join(', ')}`;
}

function toNames(texts: readonly string[]): ReadonlySet<string> {
  return new Set(texts.map(toName));
}

/** Returns the canonical name; a name that is not known stays as it is, and so is never allowed. */
function toName(text: string): string {
  return normalizeCapability(text) ?? text;
}

interface AddedCapability {
  readonly name: string;
  readonly field: string;
}

const NOTHING: readonly AddedCapability[] = [];

/** Returns the capabilities that a container adds; none for a privileged container. */
function listAdded(security: SecurityContext | undefined): readonly AddedCapability[] {
  if (security === undefined || security.privileged) return NOTHING;
  return security.capabilitiesAdd.map((text, index) => ({
    name: toName(text),
    field: `spec.security.capabilities_add[${index}]`,
  }));
}

/** Finds required capabilities that the container does not drop. */
function* findKept(
  security: SecurityContext | undefined,
  required: ReadonlySet<string>,
): Generator<Finding> {
  const texts = security?.privileged === true ? [] : (security?.capabilitiesDrop ?? []);
  const dropped = toNames(texts);
  const kept = [...required].filter((name) => !dropped.has(name) && !dropped.has(ALL));
  if (kept.length === 0) return;
  yield {
    field: 'spec.security.capabilities_drop',
    found: show(texts),
    allowed: `dropping ${[...required].join(', ')}`,
  };
}
