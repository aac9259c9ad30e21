import { Reload_Mode as Mode, type ConfigRef, type SecretRef } from '@cloudless/api';

/** Formats references to secrets or configs: `db at /etc/db (key password), tls, reload SIGHUP`. */
export function formatFileReferences(references: readonly (SecretRef | ConfigRef)[]): string {
  return references.map(formatFileReference).join('; ');
}

function formatFileReference(reference: SecretRef | ConfigRef): string {
  const { name, env, mountPath, keys, mode, version, reload } = reference;
  const audience = 'audience' in reference ? reference.audience : '';
  const chosen = keys.map(({ key, env: variable, file }) =>
    variable !== '' ? `${key} as ${variable}` : file === '' ? key : `${key} as file ${file}`,
  );
  const parts = [
    env === '' ? '' : `as ${env}`,
    mountPath === '' ? '' : `at ${mountPath}`,
    chosen.length === 0 ? '' : `(${chosen.join(', ')})`,
    version === 0 ? '' : `version ${version}`,
    mode === 0 ? '' : `mode 0${mode.toString(8)}`,
    audience === '' ? '' : `audience ${audience}`,
    formatReload(reload?.mode ?? Mode.RESTART, reload?.signal ?? ''),
  ];
  return [name, ...parts.filter((part) => part !== '')].join(' ');
}

/** RESTART is the default, and not shown. */
function formatReload(mode: Mode, signal: string): string {
  switch (mode) {
    case Mode.SIGNAL:
      return `reload ${signal === '' ? 'SIGHUP' : signal}`;
    case Mode.NONE:
      return 'reload none';
    default:
      return '';
  }
}
