/**
 * Records of the store. They belong to the coordinator alone and are not part of the published API.
 */
export * from './gen/cloudless/store/records_pb.js';
