/**
 * A seccomp or AppArmor profile: the default of the container runtime, none, or a profile of the
 * node.
 */
export type SecurityProfile =
  | { readonly kind: 'runtimeDefault' }
  | { readonly kind: 'unconfined' }
  /** Absolute path of a seccomp profile, or name of an AppArmor profile. */
  | { readonly kind: 'localhost'; readonly reference: string };

/** The four parts of an SELinux context. An empty part has the default of the node. */
export interface SelinuxOptions {
  readonly user: string;
  readonly role: string;
  readonly type: string;
  readonly level: string;
}

const LOCALHOST = 'localhost/';

/**
 * Parses `RuntimeDefault`, `Unconfined` or `localhost/<reference>`. Empty means `RuntimeDefault`.
 * @returns Undefined for any other text.
 */
export function parseProfile(text: string): SecurityProfile | undefined {
  if (text === '' || text === 'RuntimeDefault') return { kind: 'runtimeDefault' };
  if (text === 'Unconfined') return { kind: 'unconfined' };
  if (!text.startsWith(LOCALHOST) || text.length === LOCALHOST.length) return undefined;
  return { kind: 'localhost', reference: text.slice(LOCALHOST.length) };
}

/**
 * Parses `user:role:type:level`. The level may contain colons.
 * @returns Undefined when the text has another form, or all parts are empty.
 */
export function parseSelinuxOptions(text: string): SelinuxOptions | undefined {
  const match = /^([\w.-]*):([\w.-]*):([\w.-]*):([\w.,:-]*)$/.exec(text);
  if (match === null || /^:*$/.test(text)) return undefined;
  const [, user = '', role = '', type = '', level = ''] = match;
  return { user, role, type, level };
}
