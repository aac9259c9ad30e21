/**
 * A profile of seccomp or AppArmor: the container runtime's own, none, or one that the node has.
 */
export type ProfileText =
  | { readonly kind: 'runtimeDefault' }
  | { readonly kind: 'unconfined' }
  /** Absolute path of a seccomp profile, or name of an AppArmor profile. */
  | { readonly kind: 'localhost'; readonly reference: string };

/** The four parts of an SELinux context; empty ones are the node's own. */
export interface SelinuxText {
  readonly user: string;
  readonly role: string;
  readonly type: string;
  readonly level: string;
}

const LOCALHOST = 'localhost/';

/**
 * Reads `RuntimeDefault`, `Unconfined` or `localhost/<reference>`; empty is the first. @returns
 * Undefined for anything else.
 */
export function parseProfile(text: string): ProfileText | undefined {
  if (text === '' || text === 'RuntimeDefault') return { kind: 'runtimeDefault' };
  if (text === 'Unconfined') return { kind: 'unconfined' };
  if (!text.startsWith(LOCALHOST) || text.length === LOCALHOST.length) return undefined;
  return { kind: 'localhost', reference: text.slice(LOCALHOST.length) };
}

/**
 * Reads `user:role:type:level`; the level may hold further colons. @returns Undefined for what is
 * none, or says nothing at all.
 */
export function parseSelinuxOptions(text: string): SelinuxText | undefined {
  const match = /^([\w.-]*):([\w.-]*):([\w.-]*):([\w.,:-]*)$/.exec(text);
  if (match === null || /^:*$/.test(text)) return undefined;
  const [, user = '', role = '', type = '', level = ''] = match;
  return { user, role, type, level };
}
