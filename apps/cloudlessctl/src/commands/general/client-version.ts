import { COMMIT, VERSION } from '@cloudless/app-kit';
import { definedFields } from '@cloudless/base';

/** Returns the version of cloudlessctl as in `-o json`; `commit` is absent without a git commit. */
export function getClientVersion(): { readonly version: string; readonly commit?: string } {
  return { version: VERSION, ...definedFields({ commit: COMMIT }) };
}
