/**
 * Names of the Linux capabilities without `CAP_`.
 * @see capabilities(7), include/uapi/linux/capability.h of Linux 6.x
 */
const NAMES: ReadonlySet<string> = new Set([
  'AUDIT_CONTROL',
  'AUDIT_READ',
  'AUDIT_WRITE',
  'BLOCK_SUSPEND',
  'BPF',
  'CHECKPOINT_RESTORE',
  'CHOWN',
  'DAC_OVERRIDE',
  'DAC_READ_SEARCH',
  'FOWNER',
  'FSETID',
  'IPC_LOCK',
  'IPC_OWNER',
  'KILL',
  'LEASE',
  'LINUX_IMMUTABLE',
  'MAC_ADMIN',
  'MAC_OVERRIDE',
  'MKNOD',
  'NET_ADMIN',
  'NET_BIND_SERVICE',
  'NET_BROADCAST',
  'NET_RAW',
  'PERFMON',
  'SETFCAP',
  'SETGID',
  'SETPCAP',
  'SETUID',
  'SYSLOG',
  'SYS_ADMIN',
  'SYS_BOOT',
  'SYS_CHROOT',
  'SYS_MODULE',
  'SYS_NICE',
  'SYS_PACCT',
  'SYS_PTRACE',
  'SYS_RAWIO',
  'SYS_RESOURCE',
  'SYS_TIME',
  'SYS_TTY_CONFIG',
  'WAKE_ALARM',
]);

/** The name that means every capability. */
export const ALL_CAPABILITIES = 'ALL';

/**
 * Returns the canonical name of a capability: `cap_net_admin`, `CAP_NET_ADMIN` and `NET_ADMIN`
 * become `NET_ADMIN`.
 * @returns Undefined for an unknown name. `ALL` stays `ALL`.
 */
export function normalizeCapability(text: string): string | undefined {
  const upper = text.toUpperCase();
  if (upper === ALL_CAPABILITIES) return upper;
  const name = upper.startsWith('CAP_') ? upper.slice('CAP_'.length) : upper;
  return NAMES.has(name) ? name : undefined;
}
