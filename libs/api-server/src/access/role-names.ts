import { Role } from '@cloudless/api';
import type { RoleName } from '@cloudless/identity';

/** The role of each value in the API; undefined for no role. */
export const ROLE_NAMES: Readonly<Record<Role, RoleName | undefined>> = {
  [Role.ROLE_UNSPECIFIED]: undefined,
  [Role.VIEWER]: 'viewer',
  [Role.OPERATOR]: 'operator',
  [Role.ADMIN]: 'admin',
};
