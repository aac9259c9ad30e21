import { parseProfile, parseSelinuxOptions, type SecurityContext } from '@cloudless/api';
import type { Finding, IdRange } from '../model.js';
import { show } from './config-reader.js';
import { SATISFIED, type RuleDefinition } from './rule-definition.js';

/** Privileged containers. */
export const privilegedMode: RuleDefinition<'PRIVILEGED_MODE'> = {
  needsContainer: true,
  read: () => ({}),
  create:
    () =>
    ({ spec: { security } }) =>
      security?.privileged === true
        ? [{ field: 'spec.security.privileged', found: 'true', allowed: 'false' }]
        : SATISFIED,
};

/** Name of the AppArmor profile of a workload that sets none. */
const NODE_DEFAULT = 'NodeDefault';

/** Seccomp profiles. A privileged container has none. */
export const seccompProfile: RuleDefinition<'SECCOMP_PROFILE'> = {
  needsContainer: true,
  read: (reader) => ({
    allowed: [],
    ...reader.texts('allowed', {
      required: true,
      isAllowed: (text) => parseProfile(text) !== undefined,
      expected: 'RuntimeDefault, Unconfined or localhost/<path>',
    }),
  }),
  create: ({ allowed }) => {
    const allowedText = allowed.join(', ');
    return ({ spec: { security } }) => {
      const profile =
        security?.privileged === true ? 'Unconfined' : security?.seccompProfile || 'RuntimeDefault';
      if (allowed.includes(profile)) return SATISFIED;
      return [{ field: 'spec.security.seccomp_profile', found: profile, allowed: allowedText }];
    };
  },
};

/** AppArmor profiles. A privileged container without a profile has none. */
export const apparmorProfile: RuleDefinition<'APPARMOR_PROFILE'> = {
  needsContainer: true,
  read: (reader) => ({
    allowed: [],
    ...reader.texts('allowed', {
      required: true,
      isAllowed: (text) => text === NODE_DEFAULT || parseProfile(text) !== undefined,
      expected: 'RuntimeDefault, Unconfined, NodeDefault or localhost/<name>',
    }),
  }),
  create: ({ allowed }) => {
    const allowedText = allowed.join(', ');
    return ({ spec: { security } }) => {
      const absent = security?.privileged === true ? 'Unconfined' : NODE_DEFAULT;
      const profile = security?.apparmorProfile || absent;
      if (allowed.includes(profile)) return SATISFIED;
      return [{ field: 'spec.security.apparmor_profile', found: profile, allowed: allowedText }];
    };
  },
};

/** SELinux options. A privileged container has no SELinux context. */
export const selinuxOptions: RuleDefinition<'SELINUX_OPTIONS'> = {
  needsContainer: true,
  read: (reader) => ({
    ...reader.texts('users'),
    ...reader.texts('roles'),
    ...reader.texts('types'),
    ...reader.texts('levels'),
  }),
  create: (config) => {
    const lists = [
      ['user', config.users ?? []],
      ['role', config.roles ?? []],
      ['type', config.types ?? []],
      ['level', config.levels ?? []],
    ] as const;
    const field = 'spec.security.selinux_options';
    return ({ spec: { security } }) => {
      if (security?.privileged === true)
        return [{ field, found: 'a privileged container', allowed: 'a container with SELinux' }];
      const text = security?.selinuxOptions ?? '';
      if (text === '') return SATISFIED;
      const options = parseSelinuxOptions(text);
      if (options === undefined)
        return [{ field, found: show(text), allowed: 'user:role:type:level' }];
      return lists
        .filter(([part, allowed]) => options[part] !== '' && !allowed.includes(options[part]))
        .map(([part, allowed]) => ({
          field,
          found: `${part} ${show(options[part])}`,
          allowed: allowed.length === 0 ? `an empty ${part}` : `${part} ${allowed.join(', ')}`,
        }));
    };
  },
};

/** Runtime classes. */
export const runtimeClass: RuleDefinition<'RUNTIME_CLASS'> = {
  needsContainer: true,
  read: (reader) => ({
    allowed: [],
    ...reader.texts('allowed', { required: true, expected: 'names of runtime classes' }),
    ...reader.switch('allowDefault'),
  }),
  create: ({ allowed, allowDefault }) => {
    const allowedText = [...allowed, ...(allowDefault === true ? ['the default'] : [])].join(', ');
    return ({ spec: { security } }) => {
      const name = security?.runtimeClass ?? '';
      if (name === '' ? allowDefault === true : allowed.includes(name)) return SATISFIED;
      const found = name === '' ? 'the default' : show(name);
      return [{ field: 'spec.security.runtime_class', found, allowed: allowedText }];
    };
  },
};

/** Containers that cannot run as root. */
export const runAsNonRoot: RuleDefinition<'RUN_AS_NON_ROOT'> = {
  needsContainer: true,
  read: () => ({}),
  create:
    () =>
    ({ spec: { security } }) => {
      const user = security?.runAsUser;
      if (security?.runAsNonRoot === true || (user !== undefined && user > 0n)) return SATISFIED;
      return user === undefined
        ? [
            {
              field: 'spec.security.run_as_non_root',
              found: 'false',
              allowed: 'true, or a run_as_user above 0',
            },
          ]
        : [{ field: 'spec.security.run_as_user', found: '0', allowed: 'a user id above 0' }];
    },
};

/** Root file systems that cannot be written. */
export const readOnlyRootFs: RuleDefinition<'READ_ONLY_ROOT_FS'> = {
  needsContainer: true,
  read: () => ({}),
  create:
    () =>
    ({ spec: { security } }) =>
      security?.readOnlyRootFilesystem === true
        ? SATISFIED
        : [{ field: 'spec.security.read_only_root_filesystem', found: 'false', allowed: 'true' }],
};

/** User, groups and privileges of the processes. */
export const securityContext: RuleDefinition<'SECURITY_CONTEXT'> = {
  needsContainer: true,
  read: (reader) => {
    const config = {
      ...reader.ids('userIds'),
      ...reader.ids('groupIds'),
      ...reader.switch('requireNoNewPrivileges'),
    };
    reader.requireOneOf('userIds', 'groupIds', 'requireNoNewPrivileges');
    return config;
  },
  create:
    ({ userIds, groupIds, requireNoNewPrivileges }) =>
    ({ spec: { security } }) => [
      ...(userIds === undefined ? [] : findId('run_as_user', security?.runAsUser, userIds)),
      ...(groupIds === undefined ? [] : findGroups(security, groupIds)),
      ...(requireNoNewPrivileges === true ? findNewPrivileges(security) : []),
    ],
};

function* findGroups(security: SecurityContext | undefined, range: IdRange): Generator<Finding> {
  yield* findId('run_as_group', security?.runAsGroup, range);
  if (security?.fsGroup !== undefined) yield* findId('fs_group', security.fsGroup, range);
  for (const [index, id] of (security?.supplementalGroups ?? []).entries())
    yield* findId(`supplemental_groups[${index}]`, id, range);
}

function* findId(name: string, id: bigint | undefined, { min, max }: IdRange): Generator<Finding> {
  if (id !== undefined && id >= min && id <= max) return;
  const found = id === undefined ? 'not set (the image decides)' : String(id);
  yield { field: `spec.security.${name}`, found, allowed: `${min} to ${max}` };
}

function* findNewPrivileges(security: SecurityContext | undefined): Generator<Finding> {
  if (security?.privileged === true)
    yield { field: 'spec.security.privileged', found: 'true', allowed: 'false' };
  else if (security?.noNewPrivileges === false)
    yield { field: 'spec.security.no_new_privileges', found: 'false', allowed: 'true' };
}
